#include "cli/foreign/az_words.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

enum class Becomes {
  kNothing,       // it has no effect here
  kOption,        // `here` with the value
  kName,          // the value stands first, without an option
  kShellCommand,  // the value is what a shell runs, after all else
  kRefused        // `here` says what to write in its place; its value may be a secret, and is shown nowhere
};

struct AzOption {
  std::string_view names;  // with a space between them
  Becomes becomes;
  const char* here;
  bool has_value = true;
};

struct AzCommand {
  std::string_view words;
  const char* here;  // hvdrun's words; empty: it has no such command
  std::span<const AzOption> options;
  bool has_json = false;      // hvdrun prints it as JSON where it is asked to, as `az` does where it is not
  const char* why_none = "";  // where there is nothing to be done
  const char* instead = "";   // what to write for a command that hvdrun has not
};

constexpr std::array<AzOption, 13> kEverywhere = {{
    {"-g --resource-group", Becomes::kNothing, ""},
    {"-w --workspace", Becomes::kNothing, ""},
    {"-e --experiment", Becomes::kNothing, ""},
    {"-l --location", Becomes::kNothing, ""},
    {"-k --ssh-private-key", Becomes::kNothing, ""},
    {"--subscription", Becomes::kNothing, ""},
    {"--expiry", Becomes::kNothing, ""},
    {"--interval", Becomes::kNothing, ""},
    {"--password", Becomes::kNothing, ""},
    {"-y --yes", Becomes::kNothing, "", false},
    {"--verbose", Becomes::kNothing, "", false},
    {"--debug", Becomes::kNothing, "", false},
    {"--only-show-errors", Becomes::kNothing, "", false},
}};
constexpr std::array<AzOption, 7> kCreate = {{
    {"-n --name --job-name", Becomes::kOption, "-n"},
    {"-c -r --cluster --cluster-name", Becomes::kOption, "-c"},
    {"--cluster-resource-group", Becomes::kNothing, ""},
    {"-f --config-file --config", Becomes::kOption, "-f"},
    {"--storage-account-name", Becomes::kOption, "--storage-account-name"},
    {"--storage-account-key", Becomes::kRefused, "give it in the environment, as AZURE_BATCHAI_STORAGE_KEY=..."},
    {"--afs-name --afs-mount-path --bfs-name --bfs-mount-path --nfs --nfs-mount-path", Becomes::kRefused,
     "say which directory of the nodes it is with --mount NAME=DIR, as in --mount afs=/data/share; see hvdrun help "
     "batch-ai"},
}};
constexpr std::array<AzOption, 1> kNamed = {{{"-n --name -j --job --job-name -c --cluster", Becomes::kName, ""}}};
constexpr std::array<AzOption, 2> kDeleted = {{
    kNamed[0],
    {"--no-wait", Becomes::kNothing, "", false},
}};
constexpr std::array<AzOption, 3> kFiles = {{
    {"-j --job --job-name -n --name", Becomes::kName, ""},
    {"-d --output-directory-id", Becomes::kOption, "-d"},
    {"-p --path", Becomes::kOption, "-p"},
}};
constexpr std::array<AzOption, 4> kStream = {{
    {"-j --job --job-name", Becomes::kName, ""},
    {"-f --file-name -n --name", Becomes::kOption, "--file"},  // -n in the first release
    {"-d --output-directory-id", Becomes::kOption, "-d"},
    {"-p --path", Becomes::kOption, "-p"},
}};
constexpr std::array<AzOption, 3> kExec = {{
    {"-j --job --job-name", Becomes::kName, ""},
    {"-n --node-id", Becomes::kOption, "--node"},
    {"--exec", Becomes::kShellCommand, ""},
}};
constexpr std::array<AzOption, 2> kResize = {{
    {"-n --name", Becomes::kName, ""},
    {"-t --target", Becomes::kOption, "-t"},
}};

constexpr const char* kNoUse = "has no use here: hvdrun keeps one list of jobs for each user";

// The longer of two that begin alike comes first.
constexpr std::array<AzCommand, 27> kCommands = {{
    {"job create", "submit", kCreate, true},
    {"job list-files", "files", kFiles, true},
    {"job list-nodes", "nodes", kNamed, true},
    {"job list", "ps --all", {}, true},
    {"job show", "show", kNamed, true},
    {"job wait", "wait", kNamed},
    {"job terminate", "stop", kNamed},
    {"job delete", "rm", kDeleted},
    {"job file list", "files", kFiles, true},
    {"job file stream", "logs -f", kStream},
    {"job stream-file", "logs -f", kStream},
    {"job node list", "nodes", kNamed, true},
    {"job node exec", "exec", kExec},
    {"job", "", {}},
    {"cluster show", "cluster show", kNamed, true},
    {"cluster list-nodes", "cluster show", kNamed, true},
    {"cluster node list", "cluster show", kNamed, true},
    {"cluster list", "cluster list", {}, true},
    {"cluster delete", "cluster remove", kDeleted},
    {"cluster resize", "cluster", kResize},
    {"cluster create", "", {}, false, "", "hvdrun cluster add NAME -H node1,node2"},
    {"cluster node exec", "", {}, false, "", "hvdrun -H node1,node2 COMMAND"},
    {"cluster", "", {}},
    {"workspace", "", {}, false, kNoUse},
    {"experiment", "", {}, false, kNoUse},
    {"file-server", "", {}},
    {"list-usages", "", {}},
}};

const AzCommand* command_of(const std::vector<std::string>& words) {
  std::string line;
  for (std::size_t i = 0; i < words.size() && i < 3; ++i) {
    line += words[i] + " ";
  }
  const auto found = std::find_if(kCommands.begin(), kCommands.end(), [&line](const AzCommand& command) {
    return line.starts_with(std::string(command.words) + " ");
  });
  return found == kCommands.end() ? nullptr : &*found;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// Returns the option; a long name may be abbreviated, as `az` allows. Null: there is none.
const AzOption* option_of(const AzCommand& command, const std::string& name) {
  for (const std::span<const AzOption>& list : {command.options, std::span<const AzOption>(kEverywhere)}) {
    for (const AzOption& option : list) {
      const std::vector<std::string> names = split(option.names);
      const bool is_it = std::any_of(names.begin(), names.end(), [&name](const std::string& known) {
        return known == name || (name.size() > 4 && name.starts_with("--") && known.starts_with(name));
      });
      if (is_it) {
        return &option;
      }
    }
  }
  return nullptr;
}

// Returns true for a line of the first release, where -r was the cluster and -c the file.
bool is_of_first_release(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "-r" || word.substr(0, word.find('=')) == "--cluster-name";
  });
}

// Returns where an option's name ends, behind which its value may stand: --name=NAME, -nNAME.
std::size_t name_end(const std::string& word) {
  constexpr std::size_t kShort = 2;
  const bool is_short = word.size() > kShort && word[0] == '-' && word[1] != '-';
  return is_short ? kShort : std::min(word.starts_with("--") ? word.find('=') : word.size(), word.size());
}

// AzReader reads the options of one command.
class AzReader {
 public:
  explicit AzReader(const AzCommand& command) : command_(command) {}

  Result<void> read(const std::vector<std::string>& words) {
    const bool is_first_release = is_of_first_release(words);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t end = name_end(words[i]);
      const bool has_own_value = end < words[i].size();
      const std::string given = words[i].substr(0, end);
      const std::string name = is_first_release && given == "-c" ? "--config" : given;
      const bool is_output = name == "-o" || name == "--output";
      const AzOption* option = option_of(command_, name);
      if (option == nullptr && !is_output) {
        is_queried_ = is_queried_ || name == "--query";
        rest_.push_back(words[i]);
        continue;
      }
      if (!is_output && option->becomes == Becomes::kRefused) {
        return refuse(" " + name + ": " + option->here);
      }
      std::string value;
      if (has_own_value) {
        value = words[i].substr(end + (words[i][end] == '=' ? 1 : 0));
      } else if (is_output || option->has_value) {
        if (++i >= words.size()) {
          return refuse(" " + name + ": its value is missing");
        }
        value = words[i];
      }
      if (is_output) {
        wants_json_ = value.starts_with("json");
      } else {
        take(*option, value);
      }
    }
    return {};
  }

  Result<AzLine> line() {
    AzLine line;
    line.command = command_.words;
    line.words = split(command_.here);
    if (std::any_of(rest_.begin(), rest_.end(), [](const auto& word) { return word == "-h" || word == "--help"; })) {
      line.words.emplace_back("--help");
      return line;
    }
    if (line.words == std::vector<std::string>{"cluster"}) {  // resize
      HVD_TRY_ASSIGN(const std::string what, resized());
      line.words.push_back(what);
    }
    const bool needs_name = std::any_of(command_.options.begin(), command_.options.end(),
                                        [](const AzOption& option) { return option.becomes == Becomes::kName; });
    if (needs_name && name_.empty()) {
      return refuse(": its name is missing");
    }
    if (!name_.empty()) {
      line.words.push_back(name_);
    }
    line.words.insert(line.words.end(), options_.begin(), options_.end());
    line.words.insert(line.words.end(), rest_.begin(), rest_.end());
    if (command_.has_json && wants_json_ && !is_queried_) {
      line.words.emplace_back("--json");
    }
    if (!shell_command_.empty()) {
      line.words.insert(line.words.end(), {"--", "sh", "-c", shell_command_});
    }
    return line;
  }

 private:
  [[nodiscard]] Error refuse(const std::string& what) const {
    return Error(Code::kInvalid, "az batchai " + std::string(command_.words) + what);
  }

  void take(const AzOption& option, const std::string& value) {
    if (option.becomes == Becomes::kName) {
      name_ = value;
    } else if (option.becomes == Becomes::kShellCommand) {
      shell_command_ = value;
    } else if (option.becomes == Becomes::kOption) {
      options_.insert(options_.end(), {option.here, value});
    }
  }

  // A cluster without nodes takes no jobs, and one with any takes them.
  Result<std::string> resized() {
    const std::vector<std::string> target = std::exchange(options_, {});
    if (target.size() != 2) {
      return refuse(": its target is missing, as in -t 0");
    }
    return std::string(target.back() == "0" ? "drain" : "resume");
  }

  const AzCommand& command_;
  std::string name_;
  std::string shell_command_;
  std::vector<std::string> options_;
  std::vector<std::string> rest_;  // what `az` has not
  bool wants_json_ = true;         // the default of `az`
  bool is_queried_ = false;
};

// Returns the commands that begin with this one's words, as those of `job`; empty: it is a command itself.
std::string commands_within(const AzCommand& group) {
  std::string names;
  for (const AzCommand& command : kCommands) {
    if (command.words.starts_with(std::string(group.words) + " ")) {
      add_to_list(names, command.words);
    }
  }
  return names;
}

Error unknown_of_group(const std::vector<std::string>& words, const std::string& known) {
  const bool has_second = words.size() > 1 && !words[1].starts_with("-");
  return Error(Code::kInvalid, "az batchai " + words.front() +
                                   (has_second ? " " + words[1] + ": there is no such command; there are "
                                               : ": say which command; there are ") +
                                   known + "; see hvdrun help batch-ai");
}

}  // namespace

bool begins_az_command(const std::vector<std::string>& words) {
  const AzCommand* command = command_of(words);
  return command != nullptr && command->words != "cluster";  // hvdrun has commands of that name too
}

std::vector<std::string> without_az(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "az") {
    words.erase(words.begin());
  }
  if (!words.empty() && words.front() == "batchai") {
    words.erase(words.begin());
  }
  return words;
}

Result<AzLine> read_az(const std::vector<std::string>& words) {
  const AzCommand* command = command_of(words);
  if (command == nullptr) {
    return Error(Code::kInvalid, "az batchai: no command is named, as in job create; see hvdrun help batch-ai");
  }
  const std::string named = "'" + std::string(command->words) + "' is a command of az batchai";
  if (*command->why_none != '\0') {
    return AzLine{std::string(command->words), {}, named + ", which " + command->why_none};
  }
  if (*command->here == '\0') {
    const std::string instead = command->instead;
    const std::string within = commands_within(*command);
    if (!within.empty()) {
      return unknown_of_group(words, within);
    }
    return Error(Code::kInvalid,
                 named + (instead.empty() ? ", for which hvdrun has none" : "; here one writes " + instead) +
                     "; see hvdrun help batch-ai");
  }
  AzReader reader(*command);
  const auto own = static_cast<std::ptrdiff_t>(split(command->words).size());
  HVD_TRY(reader.read({words.begin() + own, words.end()}));
  return reader.line();
}

}  // namespace hvd::cli
