// These are the command lines of the commands that look at a job, as values: at one that runs (launcher/live), or at
// the timeline of one.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

struct StacksOptions {
  std::string job;  // its id, name or number; empty: the only one
  bool native = false;
  bool json = false;
};

struct TimelineOptions {
  std::string file;  // "-": standard input
  bool json = false;
};

struct CliOptions;
// Reads hvdrun stacks [JOB] [--native] [--json].
Result<CliOptions> parse_stacks(std::vector<std::string> words);
// Reads hvdrun timeline FILE [--json].
Result<CliOptions> parse_timeline(std::vector<std::string> words);
// Reads hvdrun top [JOB] [--once] [--json].
Result<CliOptions> parse_top(std::vector<std::string> words);

}  // namespace hvd::cli
