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
// `why` is what cause_behind() has said of the failure, if there was one.
std::string describe_end(const news::Ended& ended, const Placement& placement, const std::string& why = "");

// Returns the exception that ended the rank and where it was raised; empty: it is not known, or the cause names it.
std::string cause_behind(const Failure& failure);

// RankCounts says how a job's ranks have ended. Words and JSON tell the same.
struct RankCounts {
  int succeeded = 0;  // also those that served the others until these had ended
  int failed = 0;     // also those that were stopped because of a failure
  int lost = 0;
  int not_started = 0;
  int released = 0;  // told to end while the job went on without them, or when the others had ended well
};
RankCounts count_ranks(const JobState& state);

// Counts hosts. Under an engine each rank has an agent, which counts as a node, so several nodes may be one host.
std::size_t host_count(const Placement& placement);

// Returns "12.3 s", "2 min 5 s", "3 h 12 min".
std::string describe_duration(Duration took);

}  // namespace hvd::launch
