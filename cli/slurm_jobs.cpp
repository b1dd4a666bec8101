#include "cli/slurm_jobs.h"

#include <algorithm>
#include <fstream>

#include "cli/options/job_settings.h"
#include "launcher/engines/slurm_batch.h"
#include "launcher/job/host_list.h"
#include "launcher/process/output_of.h"
#include "launcher/state/exit_codes.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

constexpr auto kSlurmAnswer = std::chrono::seconds(60);

std::string number_of(const JobRecord& job) {
  return job.engine_job.substr(job.engine_job.find(':') + 1);
}

Result<std::string> answer_of(const std::vector<std::string>& words) {
  return output_of(words, own_environment(), Deadline::after(kSlurmAnswer));
}

// Returns the exit code that hvdrun left at its end; nothing: it left none.
std::optional<int> status_of(const JobRecord& job) {
  std::ifstream file(job.output + "/status");
  std::string word;
  file >> word;
  return parse_number<int>(word, 0, 255);
}

// Asks about a job that squeue does not show, or shows as ended; nothing: Slurm does not know it any more.
std::optional<SlurmWord> last_word_of(const JobRecord& job) {
  if (const auto answer = answer_of({"scontrol", "show", "job", "-o", number_of(job)}); answer.ok()) {
    if (auto said = read_scontrol(answer.value())) {
      return said;
    }
  }
  const auto answer = answer_of({"sacct", "-n", "-X", "-P", "-o", "JobID,State,ExitCode", "-j", number_of(job)});
  return answer.ok() ? read_sacct(answer.value()) : std::nullopt;
}

void set_nodes(JobRecord& job, const std::string& names) {
  const auto hosts = parse_host_list(names);
  if (hosts.ok()) {
    job.nodes.clear();
    for (const HostSpec& host : hosts.value()) {
      job.nodes.push_back({host.name, ""});
    }
  }
}

void end_record(JobRecord& job, const std::optional<SlurmWord>& said) {
  const std::string word = said ? said->word : "";
  job.exit_code = status_of(job);
  if (!job.exit_code && said) {
    job.exit_code = said->exit_code;
  }
  const bool is_ended_by_slurm = word == "CANCELLED" || word == "PREEMPTED" || word == "TIMEOUT" || word == "NODE_FAIL";
  if (is_ended_by_slurm) {
    job.exit_code.reset();  // hvdrun may have ended of its agents' end, and left a code that means nothing
  }
  const bool has_succeeded = job.exit_code == 0 && (word.empty() || word == "COMPLETED");
  job.state = has_succeeded ? ExecutionState::kSucceeded : ExecutionState::kFailed;
  job.status = has_succeeded                                ? 0
               : job.exit_code.value_or(0) != 0             ? *job.exit_code
               : word == "TIMEOUT"                          ? exit_code::kTimedOut
               : word == "CANCELLED" || word == "PREEMPTED" ? 128 + 15
                                                            : exit_code::kNodeLost;
  if (!has_succeeded) {
    job.error.code = word == "CANCELLED" ? kStoppedError : "JobFailed";
    job.error.message = word.empty() ? job.exit_code ? "hvdrun ended with code " + std::to_string(*job.exit_code)
                                                     : "Slurm knows the job no more, and hvdrun left no exit code"
                                     : "Slurm says " + word;
  }
}

// Takes over what Slurm says. A job that is not shown has ended, and so has one that is shown as ended.
void take_word(JobRecord& job, const std::optional<SlurmWord>& shown) {
  const auto state = shown ? state_of(*shown) : SlurmState::kFailed;
  const ExecutionState before = job.state;
  if (shown && (state == SlurmState::kPending || state == SlurmState::kRunning)) {
    job.state = state == SlurmState::kPending ? ExecutionState::kQueued : ExecutionState::kRunning;
    set_nodes(job, shown->nodes);
  } else {
    const std::optional<SlurmWord> last = last_word_of(job);
    if (last) {
      set_nodes(job, last->nodes);
    }
    end_record(job, last ? last : shown);
  }
  if (job.state != before) {
    job.changed_ms = now_ms();
    job.started_ms = job.state == ExecutionState::kQueued ? 0 : job.started_ms == 0 ? job.changed_ms : job.started_ms;
    job.ended_ms = has_ended(job.state) ? job.changed_ms : 0;
  }
}

}  // namespace

Result<void> refresh_slurm_jobs(ServicePlace& place, std::vector<JobRecord>& jobs) {
  std::string numbers;
  for (const JobRecord& job : jobs) {
    if (!job.engine_job.empty() && !has_ended(job.state)) {
      add_to_list(numbers, number_of(job), ",");
    }
  }
  if (numbers.empty()) {
    return {};
  }
  const auto answer = answer_of({"squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%N", "-j", numbers});
  // Of one job that it has forgotten squeue says so by failing.
  const bool is_forgotten = !answer.ok() && answer.error().message().find("Invalid job id") != std::string::npos;
  if (!answer.ok() && !is_forgotten) {
    return answer.error().with_context("Slurm does not say how its jobs are");
  }
  const std::vector<SlurmWord> shown = is_forgotten ? std::vector<SlurmWord>() : read_squeue(answer.value());
  for (JobRecord& job : jobs) {
    if (job.engine_job.empty() || has_ended(job.state)) {
      continue;
    }
    const auto found = std::find_if(shown.begin(), shown.end(),
                                    [&job](const SlurmWord& said) { return said.number == number_of(job); });
    take_word(job, found == shown.end() ? std::nullopt : std::optional(*found));
    HVD_TRY(place.engine_jobs.update(job));
  }
  return {};
}

std::string slurm_wait_reason(const JobRecord& job) {
  const auto answer = answer_of({"squeue", "-h", "-o", "%r", "-j", number_of(job)});
  const std::string said = answer.ok() ? answer.value() : "";
  const std::string reason(trimmed(std::string_view(said).substr(0, said.find('\n'))));
  return reason.empty() || reason == "None" ? "" : "it waits in Slurm's queue: " + reason;
}

Result<void> cancel_slurm_job(const JobRecord& job) {
  const auto answer = answer_of({"scancel", number_of(job)});
  return answer.ok() ? Result<void>() : Result<void>(answer.error().with_context("cannot stop job " + job.name));
}

}  // namespace hvd::cli
