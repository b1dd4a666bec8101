// These functions turn the command line into values. Only *options.cpp and option_*.cpp here use CLI11.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/flags.h"
#include "cli/options/live_options.h"
#include "cli/options/service_options.h"
#include "launcher/job/job_spec.h"
#include "launcher/jobfile/job_run.h"
#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::cli {

enum class Command : std::uint8_t {
  kRun,
  kPlan,
  kBench,
  kCheck,
  kCheckBuild,
  kVersion,
  kHelp,
  kManual,
  kManifest,
  kSubmit,
  kService,
  kJoin,
  kStacks,
  kTimeline,
  kTop
};

struct JoinOptions {
  std::string file;
  int slots = 0;  // 0: one for each GPU, or one
  std::string agent_path;
};

struct TopOptions {
  std::string job;  // empty: the only one
  bool once = false;
  bool json = false;
  bool is_terminal = false;
  bool color = false;
};

struct CliOptions {
  Command command = Command::kRun;
  launch::JobSpec job;
  std::optional<launch::JobRun> file;  // -f: the file describes the job; `job` then holds what the flags say
  launch::Notices notices;             // to be printed before it starts: about that file, or flags
  bool json = false;                   // plan, check, submit: as JSON; run: events; bench: both
  std::string help_text;               // kHelp, kManifest: what is printed
  std::string topic;                   // kManual: empty for the list of topics
  bench::BenchOptions bench;
  std::string tune;                // kBench: the table to write; empty: none
  std::vector<std::string> plots;  // kBench: pictures of the results
  // kSubmit: values that are not looked up yet, and the words that gave them
  Flags flags;
  std::vector<std::string> words;
  // kSubmit and kPlan for a job of Slurm's: the words that hvdrun gets there, but for the job file
  std::optional<std::vector<std::string>> batch_words;
  std::string status_file;   // gets the exit code at the end; empty: none
  int parent = 0;            // kRun: the process that hvdrun ends with; 0: none
  ServiceOptions service;    // kService
  JoinOptions join;          // kJoin
  StacksOptions stacks;      // kStacks
  TimelineOptions timeline;  // kTimeline
  TopOptions top;            // kTop
};

// An error is the user's, with what was expected, or says that the installation is broken. Reads what make_job() reads.
// `words`: all but the program's name.
Result<CliOptions> parse_command_line(std::vector<std::string> words);
// Reads the words after "submit" as flags.
Result<Flags> parse_submit_words(std::vector<std::string> words);
// True when the command line asks for events as JSON, so that errors in it can be reported as events too.
bool asks_for_events(std::vector<std::string> words);

}  // namespace hvd::cli
