// main() dispatches to the commands, and writes the error with which one ends.
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/foreign/az_words.h"
#include "cli/options/option_words.h"
#include "cli/options/options.h"
#include "launcher/job/hidden_texts.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/text_grid.h"
#include "launcher/state/exit_codes.h"
#include "runtime/base/open_files.h"

namespace {

// `hidden`: texts that are masked.
int report(const hvd::Error& error, bool as_events, const std::vector<std::string>& hidden = {}) {
  const int code = hvd::launch::exit_code_of(error);
  if (!as_events) {
    // A node may have its part in it.
    std::cerr << "hvdrun: " << hvd::launch::shown_lines(hvd::launch::masked(error.message(), hidden)) << "\n";
    return code;
  }
  for (const std::string& line : hvd::launch::json_refusal(error, code, std::chrono::system_clock::now, hidden)) {
    std::cerr << line << "\n";
  }
  return code;
}

int code_of(const hvd::Result<int>& outcome, bool as_events, const std::vector<std::string>& hidden = {}) {
  return outcome.ok() ? outcome.value() : report(outcome.error(), as_events, hidden);
}

using Words = std::vector<std::string>;

// Turns a command line of `az batchai` into what it is here, and says so. Returns the exit code where that is all.
std::optional<int> translate_az(Words& words) {
  const std::size_t at = !words.empty() && words.front() == "az" ? 1 : 0;
  if (words.size() <= at || words[at] != "batchai") {
    return std::nullopt;
  }
  const auto line = hvd::cli::read_az(hvd::cli::without_az(words));
  if (!line.ok()) {
    return report(line.error(), false);
  }
  words = line.value().words;
  if (words.empty()) {
    std::cerr << "hvdrun: " << line.value().why_none << "\n";
    return 0;
  }
  std::cerr << "hvdrun: az batchai " << line.value().command << " is " << hvd::cli::shell_line(words) << "\n";
  return std::nullopt;
}

void tell(const hvd::launch::Notices& notices) {
  for (const std::string& notice : notices) {
    std::cerr << "hvdrun: " << notice << "\n";
  }
}

int dispatch(Words words) {
  if (const auto code = translate_az(words)) {
    return *code;
  }
  const auto parsed = hvd::cli::parse_command_line(words);
  if (!parsed.ok()) {
    return report(parsed.error(), hvd::cli::asks_for_events(words));
  }
  const hvd::cli::CliOptions& options = parsed.value();
  switch (options.command) {
    case hvd::cli::Command::kHelp:
    case hvd::cli::Command::kManifest:
      std::cout << options.help_text;
      return 0;
    case hvd::cli::Command::kManual:
      return code_of(hvd::cli::show_help(options), false);
    case hvd::cli::Command::kVersion:
      std::cout << "hvdrun " << HVD_VERSION << "\n";
      return 0;
    case hvd::cli::Command::kCheckBuild:
      return hvd::cli::print_build();
    case hvd::cli::Command::kPlan:
      if (options.batch_words) {
        return code_of(hvd::cli::plan_on_slurm(options), false);
      }
      return code_of(options.flags.cluster.empty() ? hvd::cli::print_plan(options) : hvd::cli::plan_on_cluster(options),
                     false);
    case hvd::cli::Command::kCheck:
      tell(options.notices);
      return code_of(hvd::cli::check_hosts(options), false);
    case hvd::cli::Command::kBench:
      tell(options.json ? hvd::launch::Notices() : options.notices);
      return code_of(hvd::cli::run_bench(options), options.json);
    case hvd::cli::Command::kSubmit:
      return code_of(options.batch_words ? hvd::cli::submit_to_slurm(options) : hvd::cli::submit_job(options), false);
    case hvd::cli::Command::kService:
      return code_of(hvd::cli::serve(options.service), false);
    case hvd::cli::Command::kJoin:
      return code_of(hvd::cli::join_job(options.join), false);
    case hvd::cli::Command::kStacks:
      return code_of(hvd::cli::show_stacks(options.stacks), false);
    case hvd::cli::Command::kTimeline:
      return code_of(hvd::cli::show_timeline(options.timeline), false);
    case hvd::cli::Command::kTop:
      return code_of(hvd::cli::show_top(options.top), false);
    case hvd::cli::Command::kRun:
      break;
  }
  if (!options.status_file.empty()) {
    hvd::cli::forget_status(options.status_file);
  }
  const int code = code_of(hvd::cli::run_job(options), options.json, options.job.hidden);
  if (!options.status_file.empty()) {
    hvd::cli::write_status(options.status_file, code);
  }
  return code;
}

// Checks that the texts which commands print were written; a job's output is checked by its console instead.
int flush_text(int code) {
  // A long text has been written in part before; stdio has then kept the error.
  const bool is_flushed = std::fflush(stdout) == 0;
  if ((is_flushed && std::ferror(stdout) == 0) || code != 0) {
    return code;
  }
  const std::string what = "cannot write to standard output";
  std::cerr << "hvdrun: " << (is_flushed ? what : hvd::Error::from_errno(what).message()) << "\n";
  return hvd::launch::exit_code::kOutputFailed;
}

// Reports that memory ran out or a library threw. There is still a message and a code, and the agents see the session
// end.
int report_defect(const char* what, const Words& words) {
  bool as_events = false;
  try {
    as_events = hvd::cli::asks_for_events(words);
  } catch (const std::exception&) {
    as_events = false;  // the same error came again: report it as text
  }
  return report(hvd::Error(hvd::Code::kInternal, what), as_events);
}

}  // namespace

int main(int argc, char** argv) {
  hvd::occupy_standard_streams();
  hvd::restore_child_signal();
  Words words;
  try {
    words.assign(argv + 1, argv + argc);
    return flush_text(dispatch(words));
  } catch (const std::exception& error) {
    return report_defect(error.what(), words);
  }
}
