#include "cli/options/live_options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "cli/options/options.h"

namespace hvd::cli {

Result<CliOptions> parse_stacks(std::vector<std::string> words) {
  constexpr const char* kUsage = "hvdrun stacks [JOB] [--native] [--json]";
  CliOptions options;
  options.command = Command::kStacks;
  CLI::App app(
      "Shows where the ranks of a running job are, as one tree of equal Python stacks. The ranks go on. JOB is a "
      "submitted job, or one that runs in another terminal of the same user.",
      "hvdrun");
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help, "Show this, and end");
  app.add_option("job", options.stacks.job, "Id, name or number of the job; default: the only one that runs here")
      ->type_name("JOB");
  app.add_flag("--native", options.stacks.native,
               "Also frames of C and C++; each rank is stopped for as long as it is read");
  app.add_flag("--json", options.stacks.json, "As JSON: one object for each rank");
  words.erase(words.begin());
  std::reverse(words.begin(), words.end());  // the order that CLI11 takes
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return Error(Code::kInvalid, std::string(error.what()) + "; as in: " + kUsage);
  }
  if (help) {
    options.command = Command::kHelp;
    options.help_text = std::string("usage: ") + kUsage + "\n" + app.help();
  }
  return options;
}

}  // namespace hvd::cli
