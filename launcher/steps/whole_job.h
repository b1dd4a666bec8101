// run_whole_job() runs a job from its hosts to its end: one step, or as many as it takes with --elastic restart, or
// where hosts that were discovered cannot be reached.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Returns hvdrun's exit code. `notices` are warnings of what the settings were made from.
Result<int> run_whole_job(JobSpec job, const std::vector<std::string>& notices);

}  // namespace hvd::launch
