// These functions put a job of Slurm back into its queue when its time is over.
#pragma once

#include "launcher/engines/slurm_notice.h"
#include "launcher/job/job_spec.h"
#include "runtime/base/log.h"

namespace hvd::launch {

// True when the job that has ended is to begin anew: its time is over, and its user has not cancelled it. `notice` was
// asked when the signal came.
bool is_to_go_back(const JobSpec& job, SlurmNotice& notice, Log& log);

// Puts Slurm's job back into its queue, and says so, or why not. Slurm then ends this process.
void requeue(const JobSpec& job);

}  // namespace hvd::launch
