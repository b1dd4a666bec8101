#include "launcher/steps/slurm_requeue.h"

#include <string>

#include "launcher/steps/step_log.h"

namespace hvd::launch {

bool is_to_go_back(const JobSpec& job, SlurmNotice& notice, Log& log) {
  if (job.requeued_job.empty()) {
    return false;
  }
  const auto settled = notice.settle();
  if (!settled.ok()) {
    log.write(LogLevel::kWarning, "hvdrun does not put Slurm's job " + job.requeued_job +
                                      " back into the queue: " + settled.error().message());
  }
  return settled.ok();
}

void requeue(const JobSpec& job) {
  const auto log = log_of(job, [](std::string_view line) { write_error_line(line); });
  const std::string who = "Slurm's job " + job.requeued_job;
  // Say this first: Slurm ends this process too when it takes the job.
  log->write(LogLevel::kWarning, who + " goes back into the queue, to begin anew when its turn comes");
  if (const auto done = requeue_slurm_job(job.requeued_job, job.environment); !done.ok()) {
    log->write(LogLevel::kError, who + " cannot go back into the queue: " + done.error().message() +
                                     "; is it a batch job, submitted with --requeue?");
  }
}

}  // namespace hvd::launch
