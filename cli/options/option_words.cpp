#include "cli/options/option_words.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/foreign/az_words.h"
#include "cli/foreign/mpirun_words.h"
#include "launcher/job/nearest_name.h"
#include "launcher/jobfile/document.h"
#include "launcher/jobfile/job_file.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

// argparse takes these names and CLI11 does not (single dash, several letters); some are old ones.
const std::map<std::string, std::string, std::less<>> kAliases = {
    {"-np", "--np"},
    {"-n", "--np"},  // argparse's abbreviation, and mpirun's and srun's word
    {"-cb", "--check-build"},
    {"-hostfile", "--hostfile"},
    {"-prefix-timestamp", "--prefix-output-with-timestamp"},
    {"--ccl-bgt-affinity", "--thread-affinity"},
    {"--mlsl-bgt-affinity", "--thread-affinity"},
    {"--network-interface", "--network-interfaces"},
    {"--log-hide-timestamp", "--log-without-timestamp"},
    {"--no-log-hide-timestamp", "--log-with-timestamp"},
};

// Returns how many words follow an option: one, also where it may be repeated, or the two of a range.
std::size_t values_of(const CLI::Option& option) {
  return option.get_items_expected_max() == 2 ? 2 : 1;
}

// Returns the only long option that begins like `name`, as argparse does; otherwise `name` itself.
std::string completed(const CLI::App& app, const std::string& name) {
  if (!name.starts_with("--") || app.get_option_no_throw(name) != nullptr) {
    return name;
  }
  std::string found;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      if (("--" + long_name).starts_with(name)) {
        if (!found.empty()) {
          return name;
        }
        found = "--" + long_name;
      }
    }
  }
  return found.empty() ? name : found;
}

bool has_option(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name) != nullptr;
}

// Returns the option's name as hvdrun has it.
std::string own_name(const CLI::App& app, const std::string& name) {
  const auto alias = kAliases.find(name);
  return completed(app, alias == kAliases.end() || has_option(app, name) ? name : alias->second);
}

// Writes -np4 and -n4 as two words.
void split_count(const CLI::App& app, std::vector<std::string>& words, std::size_t at) {
  const std::string& word = words[at];
  const std::size_t end = word.starts_with("-np") ? 3 : word.starts_with("-n") ? 2 : word.size();
  if (end < word.size() && word.find_first_not_of("0123456789", end) == std::string::npos && has_option(app, "--np") &&
      !has_option(app, word.substr(0, end))) {
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(at + 1), word.substr(end));
    words[at] = "--np";
  }
}

// Rewrites the words before the command so that CLI11 can read them. Returns where the command begins: at the first
// word that is neither an option nor an option's value.
std::size_t prepare(const CLI::App& app, std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--" || words[i].size() < 2 || words[i].front() != '-') {
      return i;
    }
    split_count(app, words, i);
    std::string& word = words[i];
    const auto equals = word.find('=');
    const std::string name = own_name(app, word.substr(0, equals));
    // argparse reads -H=HOSTS as -HHOSTS, which is what CLI11 knows.
    const bool is_short = name.size() == 2 && name[1] != '-';  // -xNAME=VALUE has the sign in its value
    const std::size_t rest = equals + (is_short && equals + 1 < word.size() ? 1 : 0);
    word = name + (equals == std::string::npos ? "" : word.substr(rest));
    const bool has_own_value = equals != std::string::npos || (word[1] != '-' && word.size() > 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool takes_value =
        option != nullptr && option->get_expected_max() > 0 && option->get_items_expected_max() > 0 && !has_own_value;
    if (takes_value && name.starts_with("--") && i + 1 < words.size() && words[i + 1].starts_with('-')) {
      // In --mpi-args '--mca btl tcp' CLI11 would take the value for an option, so it is joined to the name.
      word += "=" + words[i + 1];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i + 1));
    } else if (takes_value) {
      i += values_of(*option);
    }
  }
  return words.size();
}

// Refuses an empty host list, as from -H "$HOSTS" with the variable unset: it would run everything on this machine.
Result<void> check_hosts_given(const CLI::App& app) {
  for (const char* name : {"--hosts", "--hostfile"}) {
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option != nullptr && option->count() > 0 && option->results().back().empty()) {
      return Error(Code::kInvalid, std::string(name) + " '': the host list is empty; name hosts, or leave it out for " +
                                       "this machine");
    }
  }
  return {};
}

// CLI11 adds a usage line of its own, with other words than ours.
class Formatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override { return ""; }
};

// Says that there is no such option, and names the nearest one; `word` may have a value (--name=value).
std::string unknown_option(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      names.push_back("--" + long_name);
    }
  }
  const std::string near = launch::nearest_name(name, names);
  return "there is no option " + launch::shown_text(name) + (near.empty() ? "" : "; did you mean " + near + "?");
}

// What CLI11 says names neither the value nor what to do in these cases.
std::string told(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const auto left = app.remaining();
    if (left.empty()) {
      return text;
    }
    const std::string& word = left.front();
    return word.size() > 1 && word.front() == '-' ? unknown_option(app, word)
                                                  : "'" + launch::shown_text(word) + "' is one word too many";
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    const auto begin = text.find("--");
    const auto equals = text.find(" = ");
    if (begin != std::string::npos && equals != std::string::npos && begin < equals) {
      return text.substr(begin, equals - begin) + ": '" + text.substr(equals + 3) + "' is no number";
    }
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (text.ends_with(" missing")) {
      return name + ": its value is missing";
    }
  }
  return text;
}

bool has_one_value(const CLI::Option& option) {
  return option.get_expected_max() == 1 && option.get_items_expected_max() == 1;
}

// Of an option that is given several times the last one counts, as horovodrun's parser has it: scripts put the user's
// words after their own.
void let_last_count(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (has_one_value(*option) && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

void note_repeated(const CLI::App& app, Flags& flags) {
  for (const CLI::Option* option : app.get_options()) {
    const bool takes_last = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast;
    if (has_one_value(*option) && takes_last && option->count() > 1) {
      flags.notices.push_back(option->get_name() + " is given " + std::to_string(option->count()) +
                              " times; the last one counts: " + launch::shown_text(option->results().back()));
    }
  }
}

// Names the nearest option; CLI11 would only say that the word was not expected.
Result<void> check_known(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option != nullptr) {
      const bool takes_value = option->get_expected_max() > 0 && option->get_items_expected_max() > 0;
      if (takes_value && name.size() == words[i].size()) {
        i += values_of(*option);
      }
    } else if (name == "-pn") {
      return Error(Code::kInvalid, "there is no option " + name + "; did you mean -np? See hvdrun --help");
    } else if (name.starts_with("--")) {
      const std::string what = unknown_option(app, name);
      return Error(Code::kInvalid, what + (what.ends_with('?') ? " See" : "; see") + " hvdrun --help, or --help-all");
    }
  }
  return {};
}

// Takes mpirun's options out of those before the command, or writes ours in their place.
Result<void> take_mpirun_options(const CLI::App& app, std::vector<std::string>& words, Flags& flags) {
  std::string passed_over;
  for (std::size_t i = 0; i < words.size() && words[i].size() > 1 && words[i].front() == '-' && words[i] != "--";) {
    const std::size_t equals = words[i].find('=');
    const std::string word = words[i].substr(0, equals);
    std::optional<TakenOption> taken;
    if (!has_option(app, word) && !kAliases.contains(word)) {
      HVD_TRY_ASSIGN(taken, take_mpirun_option(words, i));
    }
    if (!taken) {
      const CLI::Option* option = app.get_option_no_throw(own_name(app, word));
      const bool takes_value =
          option != nullptr && option->get_expected_max() > 0 && option->get_items_expected_max() > 0;
      i += 1 + (takes_value && equals == std::string::npos ? values_of(*option) : 0);
      continue;
    }
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = begin + static_cast<std::ptrdiff_t>(taken->count);
    if (taken->here.empty()) {
      std::string text;
      std::for_each(begin, end, [&text](const std::string& taken_word) { add_to_list(text, taken_word, " "); });
      add_to_list(passed_over, text);
    }
    words.insert(words.erase(begin, end), taken->here.begin(), taken->here.end());
    i += taken->here.size();
  }
  if (!passed_over.empty()) {
    flags.notices.push_back(passed_over + ": options of mpirun, which have no effect here (hvdrun help mpi)");
  }
  return {};
}

// Variables before the command, as in `NAME=VALUE python train.py`, are for the ranks: a shell takes them so, and
// horovodrun gave the command to one.
void take_assignments(Flags& flags) {
  const auto is_assignment = [](const std::string& word) {
    const std::size_t sign = word.find('=');
    return sign != std::string::npos && launch::is_variable_name(word.substr(0, sign));
  };
  const auto program = std::find_if_not(flags.command.begin(), flags.command.end(), is_assignment);
  flags.env.insert(flags.env.end(), flags.command.begin(), program);
  flags.command.erase(flags.command.begin(), program);
}

}  // namespace

Result<void> parse_words(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // the order that CLI11 takes
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return Error(Code::kInvalid, told(app, error));
  }
  return {};
}

Error with_usage(const Error& why, const std::string& usage) {
  return Error(why.code(), why.message() + (why.message().ends_with('?') ? " As in" : "; as in") + ": hvdrun " + usage);
}

std::string command_help(CLI::App& app, const std::string& usage) {
  app.formatter(std::make_shared<Formatter>());
  return "usage: hvdrun " + usage + "\n" + app.help();
}

Result<void> read_words(CLI::App& app, std::vector<std::string> words, Flags& flags) {
  HVD_TRY(take_mpirun_options(app, words, flags));
  const std::size_t begin = prepare(app, words);
  const bool has_separator = begin < words.size() && words[begin] == "--";
  flags.command.assign(words.begin() + static_cast<std::ptrdiff_t>(begin + (has_separator ? 1 : 0)), words.end());
  words.resize(begin);
  HVD_TRY(check_known(app, words));
  let_last_count(app);
  if (const auto read = parse_words(app, std::move(words)); !read.ok()) {
    return Error(Code::kInvalid, read.error().message() + "; see hvdrun --help");
  }
  note_repeated(app, flags);
  take_assignments(flags);
  return check_hosts_given(app);
}

Result<bench::Measure> read_bench_words(CLI::App& app, std::vector<std::string> words, Flags& flags) {
  HVD_TRY(take_mpirun_options(app, words, flags));
  const std::size_t at = prepare(app, words);
  const std::string measure = at < words.size() ? words[at] : "";
  if (at < words.size()) {
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  }
  HVD_TRY(read_words(app, std::move(words), flags));
  if (!flags.command.empty()) {
    return Error(Code::kInvalid, "bench " + measure + ": '" + flags.command.front() + "' is one word too many");
  }
  if (!flags.tune.empty()) {
    return measure.empty()
               ? Result<bench::Measure>(bench::Measure::kTune)
               : Error(Code::kInvalid, "bench --tune chooses itself what it measures; leave '" + measure + "' out");
  }
  if (measure.empty()) {
    std::string names;
    for (const std::string& name : bench::measure_names()) {
      add_to_list(names, name);
    }
    return Error(Code::kInvalid, "bench: say what to measure: " + names);
  }
  HVD_TRY_ASSIGN(const bench::Measure found, bench::measure_of(measure));
  if (found == bench::Measure::kTune) {
    return Error(Code::kInvalid, "bench tune: say where the table is to be written: hvdrun bench --tune FILE");
  }
  return found;
}

bool has_json_word(const CLI::App& app, std::vector<std::string> words) {
  Flags ignored;
  static_cast<void>(take_mpirun_options(app, words, ignored));
  const auto begin = static_cast<std::ptrdiff_t>(prepare(app, words));
  return std::find(words.begin(), words.begin() + begin, "--json") != words.begin() + begin;
}

std::string instead_of_az(const std::vector<std::string>& words) {
  if (!begins_az_command(words)) {
    return "";
  }
  const auto here = read_az(words);
  if (!here.ok()) {
    return here.error().message();
  }
  if (here.value().words.empty()) {
    return here.value().why_none;
  }
  return "'" + here.value().command + "' is a command of az batchai; here it is: " + shell_line(here.value().words) +
         "; see hvdrun help batch-ai";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line = "hvdrun";
  for (const std::string& word : words) {
    line += " " + quoted_word(word);
  }
  return line;
}

}  // namespace hvd::cli
