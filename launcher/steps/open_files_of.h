// This function sees to it that hvdrun may open as many files as a job needs.
#pragma once

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Refuses a job that would fail half-way for lack of descriptors. `agents` is agents_of() its placement.
Result<void> allow_files_for(const JobSpec& job, const Placement& agents);

}  // namespace hvd::launch
