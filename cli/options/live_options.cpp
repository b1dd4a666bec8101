#include "cli/options/live_options.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/options/job_settings.h"
#include "cli/options/option_words.h"
#include "cli/options/options.h"
#include "launcher/process/spawn.h"

namespace hvd::cli {

namespace {

constexpr const char* kJob =
    "Its id, the beginning of it, its name, its number if it was submitted, or hvdrun's process "
    "number; default: the only one that runs here. Where several run, they are listed with their ids";

// Reads the words after the command's name into what `app` was told of. True: the user asks for the help.
Result<bool> read_words(CLI::App& app, std::vector<std::string> words, const std::string& usage, CliOptions& options) {
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help, "Show this, and end");
  words.erase(words.begin());
  if (const auto read = parse_words(app, std::move(words)); !read.ok()) {
    return with_usage(read.error(), usage);
  }
  if (help) {
    options.command = Command::kHelp;
    options.help_text = command_help(app, usage);
  }
  return help;
}

}  // namespace

Result<CliOptions> parse_stacks(std::vector<std::string> words) {
  CliOptions options;
  options.command = Command::kStacks;
  CLI::App app(
      "Shows where the ranks of a running job are, as one tree of equal Python stacks. The ranks go on. JOB is a "
      "submitted job, or one that runs in another terminal of the same user.",
      "hvdrun");
  app.add_option("job", options.stacks.job, kJob)->type_name("JOB");
  app.add_flag("--native", options.stacks.native,
               "Also frames of C and C++; each rank is stopped for as long as it is read");
  app.add_flag("--json", options.stacks.json, "As JSON: a list of one object for each rank");
  HVD_TRY(read_words(app, std::move(words), "stacks [JOB] [--native] [--json]", options));
  return options;
}

Result<CliOptions> parse_timeline(std::vector<std::string> words) {
  constexpr const char* kUsage = "timeline FILE [--json]";
  CliOptions options;
  options.command = Command::kTimeline;
  CLI::App app(
      "Says what took the time in a timeline that HOROVOD_TIMELINE has written: which operations, on which tensors, "
      "and "
      "which rank the others waited for.",
      "hvdrun");
  CLI::Option* const file = app.add_option("file", options.timeline.file, "The timeline; -: standard input");
  file->type_name("FILE");
  app.add_flag("--json", options.timeline.json, "As JSON, with all tensors");
  HVD_TRY_ASSIGN(const bool is_help, read_words(app, std::move(words), kUsage, options));
  if (!is_help && file->count() == 0) {
    return with_usage(Error(Code::kInvalid, "timeline: which file?"), kUsage);
  }
  return options;
}

Result<CliOptions> parse_top(std::vector<std::string> words) {
  CliOptions options;
  options.command = Command::kTop;
  TopOptions& top = options.top;
  CLI::App app(
      "Shows what the nodes and ranks of a running job of yours use and do, anew every second until the job ends or "
      "Ctrl-C. Ranks that differ from the others stand out.",
      "hvdrun");
  app.add_option("job", top.job, kJob)->type_name("JOB");
  app.add_flag("--once", top.once, "Show it once, and end");
  app.add_flag("--json", top.json, "As JSON, one object a line");
  HVD_TRY(read_words(app, std::move(words), "top [JOB] [--once] [--json]", options));
  top.is_terminal = ::isatty(STDOUT_FILENO) == 1;
  top.color = top.is_terminal && launch::value_in(own_environment(), "NO_COLOR").empty();
  return options;
}

}  // namespace hvd::cli
