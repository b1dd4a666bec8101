// Jobs that were submitted to Slurm: what the commands of the service ask about them, and do to them.
#pragma once

#include <string>
#include <vector>

#include "cli/service_place.h"
#include "launcher/service/engine_jobs.h"

namespace hvd::cli {

// Asks Slurm about those of the jobs that have not ended, in one call, and keeps what it says. Jobs of the service
// itself are left alone. An error says why Slurm did not answer; the jobs then are as they were known last.
Result<void> refresh_slurm_jobs(ServicePlace& place, std::vector<launch::JobRecord>& jobs);

// Returns what a job waits for, in Slurm's words, as a line for the user; empty: Slurm says nothing.
std::string slurm_wait_reason(const launch::JobRecord& job);

// Cancels the job. Slurm gives it SIGTERM, and the time of its KillWait.
Result<void> cancel_slurm_job(const launch::JobRecord& job);

}  // namespace hvd::cli
