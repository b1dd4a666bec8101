// These functions write the first cause of a job's failure, as soon as it is known, and one line at the job's end.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"
#include "launcher/state/job_state.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// Describes the rank that is the cause and has not ended yet; describe_failure() follows when it has.
std::vector<std::string> describe_failing(const news::Failing& failing, const Placement& placement);

// Returns the failure block, 24 lines at most where a rank failed: the cause, what is known of it, and the last lines
// of the failing rank's standard error.
std::vector<std::string> describe_failure(const Failure& failure, const Placement& placement);

// Returns "4 ranks on 2 nodes succeeded in 12.3 s", or "job failed after 1.2 s: rank 1 on ... ; 3 other ranks were
// stopped". Empty when no rank was started: the cause has been printed, and there is nothing to add.
std::string describe_end(const news::Ended& ended, const Placement& placement);

// Counts hosts. Under an engine each rank has an agent, which counts as a node, so several nodes may be one host.
std::size_t host_count(const Placement& placement);

// Returns "12.3 s", "2 min 5 s", "3 h 12 min".
std::string describe_duration(Duration took);

}  // namespace hvd::launch
