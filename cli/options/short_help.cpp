#include "cli/options/short_help.h"

#include <algorithm>
#include <array>

#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

struct ShortOption {
  const char* name;  // the long name, or the only one
  const char* text;
};
struct ShortGroup {
  const char* title;
  std::vector<ShortOption> options;
};

const std::vector<ShortGroup>& first_week() {
  static const std::vector<ShortGroup> groups = {
      {"Where the ranks run",
       {{"--np", "number of ranks; default: one for each slot of the hosts"},
        {"--hosts", "hosts and slots: node1:4,user@node2:4; default: this machine"},
        {"--hostfile", "the same from a file, one host a line"},
        {"--gpus", "GPUs that a rank sees: local (the job's), one (its own), none (unchanged)"},
        {"--network-interfaces", "the network between the ranks: ib0,eth0"}}},
      {"What they get",
       {{"-x", "an environment variable for all ranks; repeatable"},
        {"--sync", "this folder, brought to hosts that do not share it"},
        {"--stdin", "the rank that reads standard input; default: rank 0"}}},
      {"What you see",
       {{"--output-filename", "also keep what rank N prints, in DIR/rank.N/stdout and stderr"},
        {"--report", "keep a page of the job: what ran where, when, and what failed first"},
        {"--no-tags", "no [rank]<stdout>: before the lines"},
        {"--quiet", "only the ranks' own output, unless the job fails"},
        {"--verbose", "tell each step, and which rank runs where"},
        {"--json", "events for programs, instead of text"}}},
      {"When the job ends",
       {{"--timeout", "stop the job after S seconds"},
        {"--grace", "seconds between the first signal and SIGKILL; default: 10"},
        {"--start-timeout", "seconds until all hosts must have answered"},
        {"--elastic-restarts", "start failed ranks again, N times at most"}}},
      {"How hosts are reached",
       {{"--ssh-port", "SSH port of all hosts; default: as ssh has it"},
        {"--ssh-identity-file", "private key, tried first"},
        {"--rsh", "another command than SSH: 'kubectl exec -i {host} --'"},
        {"--launcher", "who starts the ranks: ssh (default), mpi, slurm, jsrun, spark, kubernetes"}}},
      {"Job files",
       {{"--file", "run the job that FILE describes: job.json of Azure Batch AI, or YAML"},
        {"--mount", "the nodes' directory for a mount of the job file"}}},
      {"More", {{"--check-build", "what this build can do, and what is missing"}, {"--version", "the version"}}},
  };
  return groups;
}

constexpr std::size_t kTextColumn = 36;
constexpr std::size_t kColumns = 110;

std::string names_of(const OptionInfo& option) {
  return "  " + joined(option.names) + (option.value.empty() ? "" : " " + option.value);
}

// Returns the short name of an option, and a long one where there is room.
std::string short_names_of(const OptionInfo& option) {
  std::string text = option.names.front() == "--np" ? "-np" : option.names.front();
  if (option.names.size() > 1 && !option.names.front().starts_with("--")) {
    text += ", " + option.names[1];
  }
  return "  " + text + (option.value.empty() ? "" : " " + option.value);
}

std::string padded(std::string text) {
  text.resize(std::max(text.size() + 2, kTextColumn), ' ');
  return text;
}

// Breaks the text into lines of at most kColumns; the second and later ones are indented to the text's column.
std::string wrapped(const std::string& text) {
  std::string lines;
  std::size_t column = kTextColumn;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (column + end - at > kColumns && column > kTextColumn) {
      lines += "\n" + std::string(kTextColumn, ' ');
      column = kTextColumn;
    }
    lines += text.substr(at, end - at) + " ";
    column += end - at + 1;
    at = end + 1;
  }
  while (lines.ends_with(' ')) {
    lines.pop_back();
  }
  return lines;
}

}  // namespace

std::string first_week_help(const std::vector<OptionInfo>& options) {
  std::string text;
  for (const ShortGroup& group : first_week()) {
    text += "\n" + std::string(group.title) + ":\n";
    for (const ShortOption& shown : group.options) {
      const auto named = [&shown](const OptionInfo& option) {
        return std::find(option.names.begin(), option.names.end(), shown.name) != option.names.end();
      };
      const auto option = std::find_if(options.begin(), options.end(), named);
      if (option != options.end()) {
        text += padded(short_names_of(*option)) + shown.text + "\n";
      }
    }
  }
  return text;
}

std::string group_help(const std::vector<OptionInfo>& options, const std::string& group) {
  std::string text = "\n" + group + ":\n";
  for (const OptionInfo& option : options) {
    if (option.group == group) {
      const std::string words = joined(option.words);
      text += padded(names_of(option)) + wrapped(option.help + (words.empty() ? "" : ": " + words)) + "\n";
    }
  }
  return text;
}

}  // namespace hvd::cli
