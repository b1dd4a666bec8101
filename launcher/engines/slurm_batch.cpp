#include "launcher/engines/slurm_batch.h"

#include <algorithm>
#include <array>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Slurm needs this time after --signal to end a job that has used its grace.
constexpr auto kNoticeBeyondGrace = std::chrono::seconds(60);

Result<std::string> line_of(const std::string& option) {
  if (option.find_first_of("\r\n") != std::string::npos || !option.starts_with('-')) {
    return Error(Code::kInvalid, "'" + option.substr(0, option.find_first_of("\r\n")) +
                                     "' is no option of sbatch on one line; as in --sbatch=--partition=gpu");
  }
  return "#SBATCH " + option + "\n";
}

// Slurm takes what is between double quotes as it is, but for a backslash and another quote.
Result<std::string> path_line(const std::string& option, const std::string& path) {
  if (path.find_first_of("\"\\\r\n%") != std::string::npos) {
    return Error(Code::kInvalid, path +
                                     ": a path with a quote, a backslash, a percent sign or a line's end cannot stand "
                                     "in a script of Slurm's");
  }
  return line_of(option + "=\"" + path + "\"");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

// One record follows one job, and submit returns when Slurm has it.
Result<void> check_option(std::string_view option) {
  const std::string_view name = option.substr(0, option.find('='));
  const std::string_view letter = option.substr(0, 2);
  const std::string shown(option);
  if (name == "--array" || letter == "-a") {
    return Error(Code::kInvalid, shown + " makes several jobs of one, which hvdrun cannot follow: give sbatch the " +
                                     "script that hvdrun plan shows, or submit them one by one");
  }
  if (name == "--wait" || letter == "-W") {
    return Error(Code::kInvalid, shown + " is for sbatch itself: hvdrun wait waits for a job");
  }
  if (name == "--clusters" || name == "--cluster" || letter == "-M") {
    return Error(Code::kInvalid, shown + " gives the job to another cluster, which hvdrun does not follow; submit it " +
                                     "on a machine of that cluster");
  }
  return {};
}

// Slurm reads a line of a script as words: "--partition=gpu --array=0-3" are two options. What is in quotes is a value.
Result<void> check_line(const std::string& options) {
  for (const std::string_view word : split(std::string_view(options).substr(0, options.find_first_of("'\"")), ' ')) {
    HVD_TRY(check_option(word));
  }
  return {};
}

bool is_number(std::string_view text) {
  return parse_number<std::int64_t>(text, 1).has_value();
}

// "7:0" is an exit code, "0:9" a signal.
std::optional<int> exit_code_of(std::string_view text) {
  const auto parts = split(text, ':');
  const auto code = parse_number<int>(parts.front(), 0, 255);
  const auto signo = parts.size() > 1 ? parse_number<int>(parts[1], 0, 127) : std::optional<int>(0);
  if (!code || !signo) {
    return std::nullopt;
  }
  return *signo > 0 ? 128 + *signo : *code;
}

// Returns what follows NAME= in a line of words; empty: nothing does.
std::string_view field_in(std::string_view line, std::string_view name) {
  for (std::string_view word : split(line, ' ')) {
    word = word.substr(0, word.find('\n'));
    if (word.starts_with(name) && word.size() > name.size() && word[name.size()] == '=') {
      return word.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

Result<std::string> batch_script(const SlurmBatch& batch) {
  std::string script = "#!/bin/sh\n";
  const auto add = [&script](const std::string& option) -> Result<void> {
    HVD_TRY_ASSIGN(const std::string line, line_of(option));
    script += line;
    return {};
  };
  HVD_TRY(add("--job-name=" + batch.name));
  if (batch.nodes > 0 || batch.ranks == 0) {
    const int nodes = std::max(batch.nodes, 1);
    HVD_TRY(add("--nodes=" + std::to_string(nodes)));
    HVD_TRY(add("--ntasks-per-node=" + std::to_string(std::max(1, (batch.ranks + nodes - 1) / nodes))));
  } else {
    HVD_TRY(add("--ntasks=" + std::to_string(batch.ranks)));
  }
  const auto notice = std::chrono::duration_cast<std::chrono::seconds>(batch.grace + kNoticeBeyondGrace).count();
  HVD_TRY(add("--signal=B:TERM@" + std::to_string(notice)));
  HVD_TRY(add(batch.may_begin_anew ? "--requeue" : "--no-requeue"));
  if (batch.is_elastic) {
    HVD_TRY(add("--no-kill"));
  }
  HVD_TRY(add("--open-mode=append"));
  HVD_TRY_ASSIGN(const std::string cwd, path_line("--chdir", batch.cwd));
  HVD_TRY_ASSIGN(const std::string output, path_line("--output", batch.output));
  script += cwd + output;
  for (const std::string& option : batch.options) {  // the last of two equal options counts
    HVD_TRY(check_line(option));
    HVD_TRY(add(option));
  }
  script += "exec";
  for (const std::string& word : batch.command) {
    script += " " + quoted_word(word, "=");
  }
  return script + "\n";
}

Result<std::string> submitted_number(std::string_view output) {
  for (std::string_view line : split(output, '\n')) {  // warnings may stand before it
    line = line.substr(0, line.find(';'));
    if (is_number(line)) {
      return std::string(line);
    }
  }
  return Error(Code::kSystem, "sbatch printed no job's number: " + std::string(output.substr(0, output.find('\n'))));
}

SlurmState state_of(const SlurmWord& said) {
  constexpr std::array<std::string_view, 9> kPending = {"PENDING",       "CONFIGURING",   "REQUEUED",
                                                        "REQUEUE_HOLD",  "REQUEUE_FED",   "SPECIAL_EXIT",
                                                        "RESV_DEL_HOLD", "POWER_UP_NODE", "EXPEDITING"};
  constexpr std::array<std::string_view, 9> kFailed = {"BOOT_FAIL",     "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL",
                                                       "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",  "TIMEOUT"};
  const auto is_in = [&said](const auto& words) {
    return std::find(words.begin(), words.end(), said.word) != words.end();
  };
  // Besides RUNNING, COMPLETING, SUSPENDED and the like, a newer Slurm may have a word that is not known here. An end
  // that is recorded stays, so such a job runs until Slurm says a known word, or does not know the job any more.
  return is_in(kPending)            ? SlurmState::kPending
         : is_in(kFailed)           ? SlurmState::kFailed
         : said.word == "COMPLETED" ? SlurmState::kCompleted
                                    : SlurmState::kRunning;
}

std::vector<SlurmWord> read_squeue(std::string_view output) {
  std::vector<SlurmWord> all;
  for (const std::string_view line : split(output, '\n')) {
    if (const auto parts = split(line, '|'); parts.size() == 3 && is_number(parts.front())) {
      all.push_back({std::string(parts[0]), std::string(parts[1]), std::string(parts[2]), std::nullopt});
    }
  }
  return all;
}

std::optional<SlurmWord> read_scontrol(std::string_view output) {
  SlurmWord said;
  said.number = field_in(output, "JobId");
  said.word = field_in(output, "JobState");
  said.nodes = field_in(output, "NodeList");
  said.exit_code = exit_code_of(field_in(output, "ExitCode"));
  return said.word.empty() ? std::nullopt : std::optional(said);
}

std::optional<SlurmWord> read_sacct(std::string_view output) {
  std::optional<SlurmWord> last;
  for (const std::string_view line : split(output, '\n')) {
    if (const auto parts = split(line, '|'); parts.size() == 3 && is_number(parts.front())) {
      const std::string_view word = parts[1].substr(0, parts[1].find(' '));  // "CANCELLED by 0"
      last = {std::string(parts[0]), std::string(word), "", exit_code_of(parts[2])};
    }
  }
  return last;
}

}  // namespace hvd::launch
