// The command line, made into values. CLI11 is known to options.cpp and option_*.cpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/service_options.h"
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
  kSubmit,
  kService
};

struct CliOptions {
  Command command = Command::kRun;
  launch::JobSpec job;
  std::optional<launch::JobRun> file;  // -f: the job is what a file says; `job` then holds what the flags do
  launch::Notices notices;             // what is to be told before it starts: of that file, or of flags
  bool json = false;                   // plan, check: as JSON; run: events; bench: both
  std::string help_text;               // kHelp
  std::string topic;                   // kManual: empty for the list of topics
  bench::BenchOptions bench;
  std::string tune;                // kBench: the table to write; empty: none
  std::vector<std::string> plots;  // kBench: pictures of the results
  // kSubmit: what is not looked up yet, and the words that said so
  Flags flags;
  std::vector<std::string> words;
  ServiceOptions service;  // kService
};

// An error is the user's, with what was expected, or that of a broken installation. Reads what make_job() reads.
Result<CliOptions> parse_command_line(int argc, char** argv);
// What stands behind "submit", as flags.
Result<Flags> parse_submit_words(std::vector<std::string> words);
// Whether it asks for a job's events as JSON, so that also what is wrong with it can be told so.
bool asks_for_events(int argc, char** argv);

}  // namespace hvd::cli
