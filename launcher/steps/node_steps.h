// These functions return the settings of a job file's steps on nodes, before the ranks and after them. Such a step is a
// job of its own, with one rank on each node. Its settings are made of what it needs of the job's, and all others are
// as if nobody had given them: so a setting that is added for the ranks does nothing in these steps.
#pragma once

#include "launcher/job/job_spec.h"
#include "launcher/jobfile/job_run.h"

namespace hvd::launch {

// Of the preparation. It is a part of the job for whoever watches that: its time counts for the job's limit, and hvdrun
// top and the metrics show it until the ranks begin.
JobSpec preparation_settings(const JobSpec& job, const JobRun& run, int nodes);

// Of the clean-up. By then the job has ended: what is shown and kept of it has its last state. The clean-up needs none
// of the job's folders, and is told of only where something is left.
JobSpec clean_up_settings(const JobSpec& job, int nodes);

}  // namespace hvd::launch
