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
constexpr const char* kNoWord = "Slurm does not say how its jobs are";

// A submission has ended after this time, whatever came of it.
constexpr std::int64_t kLongestSubmissionMs = 3 * 60 * 1000;

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

bool says_unknown(const Error& error) {
  return error.message().find("Invalid job id") != std::string::npos;
}

bool is_still_there(const std::optional<SlurmWord>& said) {
  const SlurmState state = said ? state_of(*said) : SlurmState::kFailed;
  return state == SlurmState::kPending || state == SlurmState::kRunning;
}

// Asks about a job that squeue does not show, or shows as ended; nothing: Slurm does not know it any more. An error: it
// cannot be asked now.
Result<std::optional<SlurmWord>> last_word_of(const JobRecord& job) {
  const std::string number = engine_number(job);
  const auto shown = answer_of({"scontrol", "show", "job", "-o", number});
  if (auto said = shown.ok() ? read_scontrol(shown.value()) : std::nullopt) {
    return said;
  }
  const auto answer = answer_of({"sacct", "-n", "-X", "-P", "-o", "JobID,State,ExitCode", "-j", number});
  const bool is_forgotten = !shown.ok() && says_unknown(shown.error());
  auto said = answer.ok() ? read_sacct(answer.value()) : std::nullopt;
  // Accounting that has missed a job's end says for ever that it runs.
  if (said && !(is_forgotten && is_still_there(said))) {
    return said;
  }
  return shown.ok() || is_forgotten ? Result<std::optional<SlurmWord>>(std::nullopt)
                                    : Result<std::optional<SlurmWord>>(shown.error());
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

// Its submission was ended before Slurm had said the job's number; or Slurm, which counts anew, has given the number to
// another job.
void end_unnumbered(JobRecord& job) {
  if (now_ms() - job.created_ms < kLongestSubmissionMs) {
    return;
  }
  if (status_of(job)) {  // hvdrun has run, and left its code
    end_record(job, std::nullopt);
    return;
  }
  job.state = ExecutionState::kFailed;
  job.status = exit_code::kNodeLost;
  job.error.code = "JobFailed";
  job.error.message = "it has no number of Slurm's: whether it has run is not known here";
}

// Takes over what Slurm says. A job that is not shown has ended, and so has one that is shown as ended, unless it goes
// back into the queue.
Result<void> take_word(JobRecord& job, std::optional<SlurmWord> said) {
  if (!is_still_there(said)) {
    const auto last = last_word_of(job);
    if (!last.ok() && !status_of(job)) {  // squeue does not know the exit code
      return last.error();
    }
    said = last.ok() && last.value() ? last.value() : said;
  }
  if (said) {
    set_nodes(job, said->nodes);
  }
  if (is_still_there(said)) {
    job.state = state_of(*said) == SlurmState::kPending ? ExecutionState::kQueued : ExecutionState::kRunning;
  } else {
    end_record(job, said);
  }
  return {};
}

void note_times(JobRecord& job, ExecutionState before) {
  if (job.state != before) {
    job.changed_ms = now_ms();
    job.started_ms = job.state == ExecutionState::kQueued ? 0 : job.started_ms == 0 ? job.changed_ms : job.started_ms;
    job.ended_ms = has_ended(job.state) ? job.changed_ms : 0;
  }
}

// Asks Slurm about these jobs; nothing is said of those that it has forgotten.
Result<std::vector<SlurmWord>> ask_squeue(const std::string& numbers) {
  if (numbers.empty()) {
    return std::vector<SlurmWord>();
  }
  const auto answer = answer_of({"squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%N", "-j", numbers});
  if (!answer.ok() && says_unknown(answer.error())) {
    return std::vector<SlurmWord>();  // of one job that it has forgotten squeue says so by failing
  }
  return answer.ok() ? Result<std::vector<SlurmWord>>(read_squeue(answer.value()))
                     : Result<std::vector<SlurmWord>>(answer.error());
}

// Takes over what squeue has shown of the job. What has no number of Slurm's ends also where squeue cannot be asked.
Result<void> take_over(JobRecord& job, const Result<std::vector<SlurmWord>>& shown) {
  const std::string number = engine_number(job);
  if (number.empty()) {
    end_unnumbered(job);
    return {};
  }
  if (!shown.ok()) {
    return shown.error();
  }
  const auto found = std::find_if(shown.value().begin(), shown.value().end(),
                                  [&number](const SlurmWord& said) { return said.number == number; });
  return take_word(job, found == shown.value().end() ? std::nullopt : std::optional(*found));
}

}  // namespace

Result<void> refresh_slurm_jobs(ServicePlace& place, std::vector<JobRecord>& jobs) {
  std::string numbers;
  for (const JobRecord& job : jobs) {
    if (!job.engine_job.empty() && !has_ended(job.state) && !engine_number(job).empty()) {
      add_to_list(numbers, engine_number(job), ",");
    }
  }
  const auto shown = ask_squeue(numbers);
  Result<void> outcome;  // the other jobs are looked at all the same
  for (JobRecord& job : jobs) {
    if (job.engine_job.empty() || has_ended(job.state)) {
      continue;
    }
    const ExecutionState before = job.state;
    if (const auto taken = take_over(job, shown); !taken.ok()) {
      outcome = outcome.ok() ? taken.error().with_context(kNoWord) : outcome;
      continue;
    }
    note_times(job, before);
    HVD_TRY(place.engine_jobs.update(job));
  }
  return outcome;
}

std::string slurm_wait_reason(const JobRecord& job) {
  if (engine_number(job).empty()) {
    return "Slurm has not said its number yet";
  }
  const auto answer = answer_of({"squeue", "-h", "-o", "%r", "-j", engine_number(job)});
  const std::string said = answer.ok() ? answer.value() : "";
  const std::string reason(trimmed(std::string_view(said).substr(0, said.find('\n'))));
  return reason.empty() || reason == "None" ? "" : "it waits in Slurm's queue: " + reason;
}

Result<void> cancel_slurm_job(const JobRecord& job) {
  if (engine_number(job).empty()) {
    return Error(Code::kInvalid, "cannot stop job " + job.name +
                                     ": Slurm has not said its number yet; squeue shows the jobs that Slurm has");
  }
  const auto answer = answer_of({"scancel", engine_number(job)});
  return answer.ok() ? Result<void>() : Result<void>(answer.error().with_context("cannot stop job " + job.name));
}

}  // namespace hvd::cli
