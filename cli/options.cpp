#include "cli/options.h"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>

#include "cli/documents.h"
#include "cli/flags.h"
#include "cli/job_file_settings.h"
#include "cli/job_settings.h"
#include "launcher/job/tunable.h"

namespace hvd::cli {
namespace {

const std::vector<std::string> kColorWords = {"auto", "always", "never"};
const std::vector<std::string> kGpuWords = {"local", "one", "none"};
const std::vector<std::string> kBindWords = {"none", "core", "numa"};
const std::vector<std::string> kLauncherWords = {"ssh", "mpi"};
const std::vector<std::string> kContainerWords = {"auto", "podman", "docker", "apptainer", "none"};
const std::vector<std::string> kDocumentKinds = {"man", "bash", "zsh", "fish", "schema"};

// Flags of horovodrun that hvdrun does not do, and why not; with a value or without.
const std::map<std::string, std::string, std::less<>> kRefused = {
    {"--jsrun", "LSF's jsrun is not supported; name the hosts with -H or --hostfile"},
    {"--min-np", "elastic jobs are not supported yet"},
    {"--min-num-proc", "elastic jobs are not supported yet"},
    {"--max-np", "elastic jobs are not supported yet"},
    {"--max-num-proc", "elastic jobs are not supported yet"},
    {"--slots-per-host", "elastic jobs are not supported yet; write the slots as in -H node1:4"},
    {"--host-discovery-script", "elastic jobs are not supported yet; name the hosts with -H or --hostfile"},
    {"--elastic-timeout", "elastic jobs are not supported yet"},
    {"--reset-limit", "elastic jobs are not supported yet"},
    {"--blacklist-cooldown-range", "elastic jobs are not supported yet"},
};

// Names that argparse takes and CLI11 does not (single dash, several letters), and old ones.
const std::map<std::string, std::string, std::less<>> kAliases = {
    {"-np", "--np"},
    {"-cb", "--check-build"},
    {"-hostfile", "--hostfile"},
    {"-prefix-timestamp", "--prefix-output-with-timestamp"},
    {"--network-interface", "--network-interfaces"},
    {"--log-hide-timestamp", "--log-without-timestamp"},
    {"--no-log-hide-timestamp", "--log-with-timestamp"},
};

const std::map<std::string, Command, std::less<>> kCommands = {
    {"run", Command::kRun}, {"plan", Command::kPlan}, {"bench", Command::kBench}, {"check", Command::kCheck}};

const std::vector<std::pair<std::string, std::string>> kExamples = {
    {"hvdrun -np 2 python train.py", "two ranks here"},
    {"hvdrun -np 4 -H node1:2,node2:2 python train.py", "two on each of two hosts"},
    {"hvdrun bench allreduce -np 4 -H node1:2,node2:2", "measure these hosts"},
    {"hvdrun plan -np 4 -H node1:2,node2:2 python train.py", "show what would run where; start nothing"},
    {"hvdrun check -H node1:2,node2:2", "are the hosts and the network ready for a job?"},
    {"hvdrun -f job.json -H node1,node2 --mount-root /data", "run the job that a file describes"},
};

std::string description() {
  std::string text = "Runs a command as the ranks of one job, on this machine or on several hosts over SSH.";
  for (const auto& [command, meaning] : kExamples) {
    constexpr std::size_t kWidth = 54;
    text += "\n  " + command + std::string(std::max(command.size() + 2, kWidth) - command.size(), ' ') + meaning;
  }
  return text;
}

void add_tunable(CLI::App& app, Flags& flags, const launch::Tunable& tunable) {
  const auto take = [&flags, &tunable](const std::string& value) {
    const auto text = launch::variable_value(tunable, value, tunable.flag);
    if (!text.ok()) {
      throw CLI::ValidationError(text.error().message());
    }
    flags.settings.emplace_back(tunable.variable, text.value());
  };
  constexpr const char* kGroup = "Settings of the runtime (also in --config-file)";
  const std::string help = std::string(tunable.help) + " (" + tunable.variable + ")";
  if (tunable.kind != launch::Tunable::Kind::kSwitch) {
    const bool is_text = tunable.kind == launch::Tunable::Kind::kText;
    app.add_option_function<std::string>(tunable.flag, take, help)->type_name(is_text ? "TEXT" : "N")->group(kGroup);
    return;
  }
  const auto set = [&flags, &tunable](const char* value) {
    return [&flags, &tunable, value] { flags.settings.emplace_back(tunable.variable, value); };
  };
  app.add_flag_callback(tunable.flag, set("1"), help)->group(kGroup);
  app.add_flag_callback(tunable.off_flag, set("0"), "The opposite")->group(kGroup);
}

void add_output_options(CLI::App& app, Flags& flags) {
  app.add_option("--output-filename", flags.output_filename,
                 "Also write what rank N prints to DIR/rank.N/stdout and DIR/rank.N/stderr")
      ->type_name("DIR");
  app.add_option(
         "--output-rotate", flags.output_rotate,
         "Let such a file grow to SIZE (as 10M, 1G), then call it stdout.1, the last one stdout.2 and so on; 10M:5 "
         "keeps 5 of these, 10M one")
      ->type_name("SIZE");
  app.add_flag("--prefix-output-with-timestamp", flags.timestamps, "Put the time in front of the ranks' lines");
  app.add_option("--color", flags.color,
                 "Colour the tags by rank; auto: on a terminal, unless NO_COLOR is set, and wherever CLICOLOR_FORCE is")
      ->type_name("WHEN")
      ->check(CLI::IsMember(kColorWords));
  app.add_flag("--no-tags", flags.no_tags, "Do not put [rank]<stdout>: in front of the ranks' lines");
  app.add_flag("--gather", flags.gather,
               "Show a line that several ranks print within a quarter of a second once, tagged with all of them");
  app.add_flag("-q,--quiet", flags.quiet, "No words of hvdrun's own unless the job fails");
  app.add_flag("--verbose", flags.verbose, "Tell each step");
}

void add_job_file_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "Job files";
  app.add_option("-f,--file", flags.job_file,
                 "Run the job that FILE describes, in place of a command: Azure Batch AI's job.json, the same keys as "
                 "YAML, or hvdrun's own short form; -np is its number of processes")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--name", flags.job_name, "Name of the job; default: as in the file, or the file's own")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--mount", flags.mounts,
                 "Directory of the nodes that the job's mount NAME (relativeMountPath) leads to; repeatable")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_option("--mount-root", flags.mount_root, "The same for all other mounts: DIR/NAME")
      ->type_name("DIR")
      ->group(kGroup);
  app.add_option("--storage-account-name", flags.storage_account,
                 "For <AZURE_BATCHAI_STORAGE_ACCOUNT> in the file; default: the variable AZURE_BATCHAI_STORAGE_ACCOUNT")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--container", flags.container,
                 "What runs the file's container image: the first that a node has (auto), one of them, or nothing: on "
                 "the host (none)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kContainerWords))
      ->group(kGroup);
}

void add_options(CLI::App& app, Flags& flags) {
  app.add_option("--np,--num-proc", flags.np, "Number of ranks; default: one per slot of the hosts")->type_name("N");
  app.add_option("-H,--hosts", flags.hosts, "Hosts with their slots, as in node1:4,user@node2:4; default: this machine")
      ->type_name("LIST");
  app.add_option("--hostfile", flags.hostfile, "File with a host a line: 'node1 slots=4', 'node1:4' or 'node[1-4]'")
      ->type_name("FILE");
  app.add_option("--config-file", flags.config_file, "YAML file with settings of the runtime, in horovodrun's form")
      ->type_name("FILE");
  app.add_option("-x", flags.env, "Set (NAME=VALUE) or pass on (NAME) an environment variable to all ranks; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option("--gpus", flags.gpus,
                 "GPUs that a rank sees: those of the job on its node (local), its own (one), or untouched (none)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kGpuWords));
  app.add_option("--bind", flags.bind,
                 "Processors that a rank runs on: all (none), cores of its own (core), or those near its GPU or of its "
                 "part of the memory nodes (numa)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kBindWords));
  app.add_option("--start-timeout", flags.start_timeout_s, "Seconds until all hosts must have answered")
      ->type_name("S")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--timeout", flags.timeout_s, "Seconds after which the job is stopped; 0: never")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--grace", flags.grace_s, "Seconds between the first signal and SIGKILL when the job is stopped")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--reconnect-timeout", flags.reconnect_timeout_s,
                 "Seconds to reach a node again whose connection broke, while its ranks go on; 0: it is lost at once")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("-p,--ssh-port", flags.ssh_port, "SSH port of all hosts; default: as ssh has it")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  app.add_option("-i,--ssh-identity-file", flags.ssh_identity_file, "Private key for SSH, tried first")
      ->type_name("FILE");
  app.add_option("--ssh-config", flags.ssh_config, "SSH configuration file, as in ssh -F")->type_name("FILE");
  app.add_option("--rsh", flags.rsh,
                 "Reach all other hosts by this command, as in 'ssh {host}' or 'kubectl exec -i {host} --'; {user} and "
                 "{port} may be in it. Default: HVD_RSH, else SSH")
      ->type_name("COMMAND");
  app.add_option("--fanout", flags.fanout,
                 "Most nodes that are reached from one place: of more, the first ones reach the others, as a tree; 0: "
                 "all are reached from here")
      ->type_name("N")
      ->check(CLI::Range(0, 100000));
  app.add_option("--launcher", flags.launcher,
                 "Who starts the ranks: hvdrun, here and by SSH or --rsh (ssh), or Open MPI's mpirun (mpi), for "
                 "programs that use MPI themselves")
      ->type_name("WORD")
      ->check(CLI::IsMember(kLauncherWords));
  app.add_flag("--mpi", flags.mpi, "As --launcher mpi");
  app.add_option("--mpi-args", flags.mpi_args, "Further arguments for mpirun, split as a shell splits quotes")
      ->type_name("TEXT");
  app.add_option("--binding-args", flags.binding_args,
                 "Arguments by which mpirun binds the ranks to processors; default: it does not")
      ->type_name("TEXT");
  app.add_option("--network-interfaces", flags.interfaces,
                 "Network interfaces for NCCL and Gloo; comma list, repeatable")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--tcp", flags.tcp, "No InfiniBand for NCCL (NCCL_IB_DISABLE=1)");
  app.add_flag("--gloo", flags.gloo, "Of horovodrun; as --launcher ssh");
  app.add_flag_callback("--disable-cache", [] {}, "Of horovodrun; as hvdrun always does it");
  add_output_options(app, flags);
  add_job_file_options(app, flags);
  app.add_flag(
      "--json", flags.json,
      "plan, check: print JSON. run: tell what happens as a JSON object a line on standard error, in place of words");
  app.add_flag("--check-build", flags.check_build, "Show what this build can do and what is missing, and end");
  app.add_option("--document", flags.document,
                 "Print the manual page (man), a shell's completion or the JSON schema of job files, and end")
      ->type_name("KIND")
      ->check(CLI::IsMember(kDocumentKinds));
  app.add_flag("-v,--version", flags.version, "Show the version, and end");
  for (const launch::Tunable& tunable : launch::tunables()) {
    add_tunable(app, flags, tunable);
  }
}

void add_bench_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "hvdrun bench";
  app.add_option("--min", flags.bench_min, "Smallest size in bytes; K, M and G are understood")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option("--max", flags.bench_max, "Largest size")->type_name("SIZE")->group(kGroup);
  app.add_option("--factor", flags.bench_factor, "From one size to the next")->type_name("N")->group(kGroup);
  app.add_option("--type", flags.bench_type, "Element type")
      ->type_name("WORD")
      ->check(CLI::IsMember(bench::type_names()))
      ->group(kGroup);
  app.add_option("--op", flags.bench_op, "Reduction operator")
      ->type_name("WORD")
      ->check(CLI::IsMember(bench::op_names()))
      ->group(kGroup);
  app.add_option("--iters", flags.bench_iters, "Calls that are timed of each size; 0: for about a quarter of a second")
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--warmup", flags.bench_warmup, "Calls before these")->type_name("N")->group(kGroup);
  app.add_option("--plot", flags.plot, "Also draw bandwidth and time by size; FILE ends in .svg")
      ->type_name("FILE")
      ->group(kGroup);
}

// The one long option that begins so, as argparse completes it; otherwise the word itself.
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

// Makes the words before the command such as CLI11 reads, and returns where the command begins: at the first word that
// is neither an option nor an option's value.
std::size_t prepare(const CLI::App& app, std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    if (word == "--" || word.size() < 2 || word.front() != '-') {
      return i;
    }
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (kRefused.contains(name)) {
      continue;
    }
    const auto alias = kAliases.find(name);
    name = completed(app, alias == kAliases.end() ? name : alias->second);
    word = name + (equals == std::string::npos ? "" : word.substr(equals));
    const bool has_own_value = equals != std::string::npos || (word[1] != '-' && word.size() > 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool takes_value =
        option != nullptr && option->get_expected_max() > 0 && option->get_items_expected_max() > 0 && !has_own_value;
    if (takes_value && name.starts_with("--") && i + 1 < words.size() && words[i + 1].starts_with('-')) {
      // --mpi-args '--mca btl tcp': to CLI11 the value is an option, unless it is one word with the name.
      word += "=" + words[i + 1];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i + 1));
    } else if (takes_value) {
      ++i;
    }
  }
  return words.size();
}

Result<void> check_refused(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (const auto refused = kRefused.find(word.substr(0, word.find('='))); refused != kRefused.end()) {
      return Error(Code::kInvalid, refused->first + ": " + refused->second);
    }
  }
  return {};
}

Result<void> read_words(CLI::App& app, std::vector<std::string> words, Flags& flags) {
  const std::size_t begin = prepare(app, words);
  const bool has_separator = begin < words.size() && words[begin] == "--";
  flags.command.assign(words.begin() + static_cast<std::ptrdiff_t>(begin + (has_separator ? 1 : 0)), words.end());
  words.resize(begin);
  HVD_TRY(check_refused(words));
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return Error(Code::kInvalid, std::string(error.what()) + "; see hvdrun --help");
  }
  return {};
}

// "hvdrun bench MEASURE [options]", with the measure anywhere between the options. Reads all words into `flags`.
Result<bench::Measure> read_bench_words(CLI::App& app, std::vector<std::string> words, Flags& flags) {
  const std::size_t at = prepare(app, words);
  const std::string measure = at < words.size() ? words[at] : "";
  if (at < words.size()) {
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  }
  HVD_TRY(read_words(app, std::move(words), flags));
  if (!flags.command.empty()) {
    return Error(Code::kInvalid, "bench " + measure + ": '" + flags.command.front() + "' is one word too many");
  }
  if (measure.empty()) {
    std::string names;
    for (const std::string& name : bench::measure_names()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    return Error(Code::kInvalid, "bench: say what to measure: " + names);
  }
  return bench::measure_of(measure);
}

Result<bench::BenchOptions> bench_options_of(const Flags& flags, const CLI::App& app, bench::Measure measure) {
  bench::BenchOptions options;
  options.measure = measure;
  HVD_TRY_ASSIGN(options.min_bytes, bench::parse_size(flags.bench_min));
  HVD_TRY_ASSIGN(options.max_bytes, bench::parse_size(flags.bench_max));
  if (measure == bench::Measure::kLatency && app.count("--max") == 0) {
    options.max_bytes = std::max<std::int64_t>(options.min_bytes, 1024);
  }
  options.factor = flags.bench_factor;
  HVD_TRY_ASSIGN(options.dtype, bench::type_of(flags.bench_type));
  HVD_TRY_ASSIGN(options.op, bench::op_of(flags.bench_op));
  options.iters = flags.bench_iters;
  options.warmup = flags.bench_warmup;
  HVD_TRY(bench::check(options));
  return options;
}

std::vector<OptionInfo> describe_options(const CLI::App& app) {
  std::vector<OptionInfo> all;
  for (const CLI::Option* option : app.get_options()) {
    OptionInfo info;
    for (const std::string& name : option->get_snames()) {
      info.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      info.names.push_back("--" + name);
    }
    if (option->get_expected_max() > 0 && option->get_items_expected_max() > 0) {
      const std::string type = option->get_type_name();  // "S:FLOAT in [0 - 1]", with what CLI11 checks
      info.value = type.substr(0, type.find(':'));
      info.words = option == app.get_option_no_throw("--color")       ? kColorWords
                   : option == app.get_option_no_throw("--gpus")      ? kGpuWords
                   : option == app.get_option_no_throw("--bind")      ? kBindWords
                   : option == app.get_option_no_throw("--launcher")  ? kLauncherWords
                   : option == app.get_option_no_throw("--container") ? kContainerWords
                   : option == app.get_option_no_throw("--document")  ? kDocumentKinds
                                                                      : std::vector<std::string>();
    }
    info.help = option->get_description();
    info.group = option->get_group();
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace

bool asks_for_events(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && (words.front() == "plan" || words.front() == "check")) {
    return false;
  }
  Flags flags;
  CLI::App app;
  add_options(app, flags);
  if (!words.empty() && words.front() == "bench") {
    add_bench_options(app, flags);
    return std::find(words.begin(), words.end(), "--json") != words.end();
  }
  if (!words.empty() && words.front() == "run") {
    words.erase(words.begin());
  }
  const auto begin = static_cast<std::ptrdiff_t>(prepare(app, words));
  return std::find(words.begin(), words.begin() + begin, "--json") != words.begin() + begin;
}

Result<CliOptions> parse_command_line(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  CliOptions options;
  if (const auto command = words.empty() ? kCommands.end() : kCommands.find(words.front());
      command != kCommands.end()) {
    options.command = command->second;
    words.erase(words.begin());
  }
  const bool is_bench = options.command == Command::kBench;
  Flags flags;
  CLI::App app(description(), "hvdrun");
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help, "Show this, and end");
  add_options(app, flags);
  if (is_bench) {
    add_bench_options(app, flags);
  }
  auto measure = Result<bench::Measure>(bench::Measure::kAllreduce);
  if (is_bench) {
    measure = read_bench_words(app, std::move(words), flags);
  } else {
    HVD_TRY(read_words(app, std::move(words), flags));
  }
  if (help) {
    options.command = Command::kHelp;
    options.help_text =
        (is_bench
             ? "usage: hvdrun bench measure [options]\n"
             : "usage: hvdrun [run|plan] [options] command [arguments]\n       hvdrun [run|plan] [options] -f FILE\n"
               "       hvdrun check [options] [program]\n       hvdrun bench measure [options]\n") +
        app.help();
    return options;
  }
  if (flags.document == "schema") {
    options.command = Command::kHelp;
    options.help_text = launch::json_schema(launch::native_schema(), "Job file of hvdrun");
    return options;
  }
  if (!flags.document.empty()) {
    options.command = Command::kHelp;
    if (!is_bench) {
      add_bench_options(app, flags);
    }
    HVD_TRY_ASSIGN(options.help_text, make_document(flags.document, describe_options(app), kExamples));
    return options;
  }
  if (flags.version || flags.check_build) {
    options.command = flags.version ? Command::kVersion : Command::kCheckBuild;
    return options;
  }
  if (is_bench) {
    HVD_TRY_ASSIGN(const bench::Measure what, std::move(measure));
    HVD_TRY_ASSIGN(options.bench, bench_options_of(flags, app, what));
    options.plot = flags.plot;
  }
  if (flags.np < 0 || (app.count("--np") > 0 && flags.np == 0)) {
    return Error(Code::kInvalid, "-np " + std::to_string(flags.np) + ": expected 1 or more ranks");
  }
  options.json = flags.json;
  if (!flags.job_file.empty()) {
    if (is_bench) {
      return Error(Code::kInvalid, "bench runs ranks of its own, and takes no job file");
    }
    if (options.command == Command::kCheck) {
      return Error(Code::kInvalid, "check looks at hosts, and takes no job file; as in: hvdrun check -H node1,node2");
    }
    HVD_TRY(read_job_file_flags(flags, options));
    return options;
  }
  HVD_TRY(check_no_job_file_flags(flags));
  if (flags.command.empty() && options.command != Command::kCheck && !is_bench) {
    return Error(Code::kInvalid, "no command given; as in: hvdrun -np 2 python train.py");
  }
  HVD_TRY_ASSIGN(options.job, make_job(flags));
  return options;
}

}  // namespace hvd::cli
