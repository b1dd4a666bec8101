#include "cli/options/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/options/documents.h"
#include "cli/options/flags.h"
#include "cli/options/job_file_settings.h"
#include "cli/options/job_settings.h"
#include "cli/options/manifest.h"
#include "cli/options/manifest_file.h"
#include "cli/options/option_table.h"
#include "cli/options/option_words.h"
#include "cli/options/service_options.h"
#include "cli/options/short_help.h"
#include "launcher/engines/kubernetes_gang.h"
#include "launcher/job/nearest_name.h"
#include "launcher/jobfile/schema.h"
#include "launcher/live/live_folder.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

// As the agent has it (launcher/wire/join_file.h).
constexpr int kMostJoinSlots = 4096;

const std::map<std::string, Command, std::less<>> kCommands = {
    {"run", Command::kRun},     {"plan", Command::kPlan},         {"bench", Command::kBench},
    {"check", Command::kCheck}, {"manifest", Command::kManifest}, {"submit", Command::kSubmit}};

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

// Records which options were given, by their long names.
void note_given(const CLI::App& app, Flags& flags) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) {
      flags.given.push_back(option->get_lnames().empty() ? option->get_name() : option->get_lnames().front());
    }
  }
}

std::string usage_of(Command command) {
  if (command == Command::kBench) {
    std::string measures;
    for (const std::string& name : bench::measure_names()) {
      add_to_list(measures, name);
    }
    return "usage: hvdrun bench MEASURE [options]\n       hvdrun bench --tune FILE [options]\nMEASURE: " + measures +
           "\nThe hosts and ranks are chosen as for a job: hvdrun bench allreduce -np 4 -H node1:2,node2:2\n";
  }
  if (command == Command::kSubmit) {
    return "usage: hvdrun submit [-c CLUSTER] [-n NAME] [options] -f FILE\n"
           "       hvdrun submit --engine slurm --nodes N [-n NAME] [options] command [arguments]\n"
           "       hvdrun submit --engine slurm [-n NAME] [options] -f FILE\n";
  }
  if (command == Command::kManifest) {
    return "usage: hvdrun manifest --image IMAGE --nodes N [options] command [arguments]\n";
  }
  return "usage: hvdrun [run|plan] [options] command [arguments]\n       hvdrun [run|plan] [options] -f FILE\n"
         "       hvdrun check [options] [program]\n       hvdrun bench MEASURE [options]\n"
         "       hvdrun submit [-c CLUSTER] [options] -f FILE\n"
         "       hvdrun manifest --image IMAGE --nodes N [options] command [arguments]\n"
         "       hvdrun top|stacks [JOB] [options]\n       hvdrun join|timeline FILE [options]\n       hvdrun help "
         "[TOPIC]\n"
         "       hvdrun and one of: " +
         service_commands() + " (each with --help)\n";
}

// Returns the words that may follow hvdrun.
std::vector<std::string> command_names() {
  std::vector<std::string> names = {"run",  "plan", "check",  "bench", "submit",  "manifest",
                                    "help", "join", "stacks", "top",   "timeline"};
  for (std::string left = service_commands(); !left.empty();) {
    const std::size_t end = std::min(left.find(", "), left.size());
    names.push_back(left.substr(0, end));
    left.erase(0, std::min(end + 2, left.size()));
  }
  return names;
}

// Returns the group of options that only this command has; empty: none.
std::string own_group(Command command) {
  return command == Command::kBench      ? "hvdrun bench"
         : command == Command::kSubmit   ? "hvdrun submit"
         : command == Command::kPlan     ? "hvdrun plan"
         : command == Command::kManifest ? "hvdrun manifest"
                                         : "";
}

std::string short_help(Command command, const CLI::App& app) {
  std::vector<OptionInfo> options = describe_options(app);
  if (command == Command::kSubmit) {  // it refuses them: the job gets nodes of a cluster, or of Slurm's
    std::erase_if(options, [](const OptionInfo& option) {
      return std::any_of(option.names.begin(), option.names.end(),
                         [](const std::string& name) { return name == "--hosts" || name == "--hostfile"; });
    });
  }
  const std::string group = own_group(command);
  return usage_of(command) + (group.empty() ? "\n" + description() + "\n" : group_help(options, group)) +
         (command == Command::kBench ? "" : first_week_help(options)) +
         "\nAll options: --help-all. The manual: hvdrun help.\n";
}

// TextRequest says which texts --help and --help-all ask for.
struct TextRequest {
  bool help = false;
  bool help_all = false;
};

// True when the command line asks for a text only, which is then in `options`.
Result<bool> read_text_request(CLI::App& app, Flags& flags, const TextRequest& request, CliOptions& options) {
  if (!request.help && !request.help_all && flags.document.empty()) {
    return false;
  }
  const Command command = options.command;
  const bool is_bench = command == Command::kBench;
  options.command = Command::kHelp;
  if (request.help_all) {
    options.help_text = usage_of(command) + app.help();
    return true;
  }
  if (request.help) {
    options.help_text = short_help(command, app);
    return true;
  }
  if (flags.document == "schema") {
    options.help_text = launch::json_schema(launch::native_schema(), "Job file of hvdrun");
    return true;
  }
  if (!is_bench) {
    add_bench_options(app, flags);
  }
  if (command != Command::kManifest) {
    add_manifest_options(app, flags);
  }
  if (command != Command::kSubmit && command != Command::kPlan) {  // plan's are called as those of submit
    add_submit_options(app, flags);
  }
  HVD_TRY_ASSIGN(options.help_text,
                 make_document(flags.document, describe_options(app), command_names(), example_commands()));
  return true;
}

// Refuses "hvdrun chek -H node1", which would look for a program chek on all hosts and report that there is none.
Result<void> check_no_misspelt_command(const std::vector<std::string>& line) {
  const std::string& word = line.front();
  const std::string near = word.find('/') == std::string::npos ? launch::nearest_name(word, command_names()) : "";
  const std::string other = instead_of_az(line);
  if ((near.empty() && other.empty()) ||
      launch::find_program(word, launch::value_in(own_environment(), "PATH"), "").ok()) {
    return {};
  }
  if (!other.empty()) {
    return Error(Code::kInvalid, other);
  }
  return Error(Code::kInvalid, "'" + word +
                                   "' is neither a command of hvdrun nor a program here; did you mean 'hvdrun " + near +
                                   "'? If it is a program of the hosts: hvdrun run " + word);
}

// Reads hvdrun join FILE [--slots N].
Result<CliOptions> parse_join(std::vector<std::string> words) {
  CliOptions options;
  options.command = Command::kJoin;
  CLI::App app(
      "Brings this machine into the running job that FILE is of (hvdrun --join-file FILE), until the job or its "
      "ranks here end. Ctrl-C or SIGTERM: they leave the job at their next commit; once more: at once.",
      "hvdrun");
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help, "Show this, and end");
  CLI::Option* const file = app.add_option("file", options.join.file, "The file")->type_name("FILE");
  app.add_option("--slots", options.join.slots, "Ranks to start here; default: one for each GPU, or one")
      ->type_name("N")
      ->check(CLI::Range(1, kMostJoinSlots));
  words.erase(words.begin());
  if (const auto read = parse_words(app, std::move(words)); !read.ok()) {
    return with_usage(read.error(), "join FILE [--slots N]");
  }
  if (help) {
    options.command = Command::kHelp;
    options.help_text = command_help(app, "join FILE [--slots N]");
    return options;
  }
  if (file->count() == 0) {
    return Error(Code::kInvalid, "join: say which job, by the file that its hvdrun --join-file has written");
  }
  HVD_TRY_ASSIGN(options.join.agent_path, agent_path());
  return options;
}

// Reads hvdrun help [TOPIC].
Result<CliOptions> parse_help(const std::vector<std::string>& words) {
  if (words.size() > 2) {
    return Error(Code::kInvalid, "help: '" + words[2] + "' is one word too many; as in: hvdrun help TOPIC");
  }
  CliOptions options;
  options.command = Command::kManual;
  options.topic = words.size() == 2 && words[1] != "-h" && words[1] != "--help" ? words[1] : "";
  return options;
}

// Adds an option as it was given.
void add_words(const CLI::Option& option, const std::string& name, std::vector<std::string>& words) {
  const bool is_flag = option.get_items_expected_max() == 0;
  for (const std::string& value : option.results()) {
    if (option.get_lnames().empty()) {
      words.insert(words.end(), {"-" + name, value});
    } else {
      words.push_back(is_flag && value == "true" ? "--" + name : "--" + name + "=" + value);
    }
  }
}

// Returns the name without dashes, which is long for all but -x and -n.
std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_snames().front() : option.get_lnames().front();
}

// Adds the options of the command line, but for those of these names.
void add_given(const CLI::App& app, const std::vector<std::string>& left_out, std::vector<std::string>& words) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = name_of(*option);
    if (option->count() > 0 && std::find(left_out.begin(), left_out.end(), name) == left_out.end()) {
      add_words(*option, name, words);
    }
  }
}

// Returns the options of the command line that hvdrun is to be given in its pod, and the command. Variables get the
// values that they have here: the pod has neither this environment nor the file of --config-file.
// `words`: those that a job file has given, with its number of ranks.
std::vector<std::string> words_for_pod(const CLI::App& app, const launch::JobSpec& job,
                                       std::vector<std::string> words) {
  std::vector<std::string> own = {"launcher",      "nodes", "key-file", "agent-port", "file",
                                  "start-timeout", "name",  "x",        "config-file"};
  if (!words.empty()) {
    own.emplace_back("np");
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == own_group(Command::kManifest)) {
      own.push_back(name_of(*option));
    }
  }
  add_given(app, own, words);
  for (const auto& [name, value] : job.user_env) {
    words.insert(words.end(), {"-x", name + "=" + value});
  }
  words.insert(words.end(), job.argv.begin(), job.argv.end());
  return words;
}

// Returns the options that hvdrun is to be given in a job of Slurm's, and the command.
std::vector<std::string> words_for_batch(const CLI::App& app, const Flags& flags) {
  std::vector<std::string> words = {"--engine=slurm"};
  add_given(app, {"engine", "sbatch", "nodes", "name", "n", "cluster", "file", "json", "x"}, words);
  for (const std::string& entry : flags.env) {  // those before the command too
    words.insert(words.end(), {"-x", entry});
  }
  words.insert(words.end(), flags.command.begin(), flags.command.end());
  return words;
}

// True for `submit --engine slurm`, and for a plan of it: outside of a job of Slurm's there is nothing else to plan.
Result<bool> is_for_slurm(Command command, const Flags& flags) {
  if (command == Command::kSubmit && !flags.engine.empty() && flags.engine != "slurm") {
    return Error(Code::kInvalid, "submit --engine " + flags.engine +
                                     ": jobs are submitted to Slurm only; write a script " +
                                     "for it as in hvdrun help allocations");
  }
  const bool is_within = !launch::value_in(own_environment(), "SLURM_JOB_ID").empty();
  const bool is_slurm =
      flags.engine == "slurm" && (command == Command::kSubmit || (command == Command::kPlan && !is_within));
  if (!is_slurm && !flags.sbatch.empty()) {
    return Error(Code::kInvalid, "--sbatch is for submit --engine slurm, and for a plan of it outside of Slurm's jobs");
  }
  if (is_slurm && (!flags.hosts.empty() || !flags.hostfile.empty() || !flags.rsh.empty() || !flags.launcher.empty() ||
                   !flags.cluster.empty())) {
    return Error(Code::kInvalid,
                 "--engine slurm: Slurm chooses the hosts; give it without -H, --hostfile, --rsh, --launcher and -c");
  }
  if (is_slurm && flags.command.empty() == flags.job_file.empty()) {
    return Error(Code::kInvalid, "--engine slurm: give either a command or -f FILE");
  }
  return is_slurm;
}

// Reads hvdrun manifest. What hvdrun would refuse in its pod is refused now.
Result<CliOptions> read_manifest(Flags flags, const CLI::App& app) {
  constexpr double kStartTimeoutS = 600;  // pods wait for machines, and for images that are fetched
  if (!flags.launcher.empty() && flags.launcher != "kubernetes") {
    return Error(Code::kInvalid, "manifest is for --launcher kubernetes, and not for --launcher " + flags.launcher);
  }
  std::vector<std::string> words_of_file;
  if (!flags.job_file.empty()) {
    HVD_TRY_ASSIGN(words_of_file, take_job_file_for_pods(flags));
  }
  if (flags.command.empty()) {
    return Error(Code::kInvalid, "no command given; as in: hvdrun manifest --image IMAGE --nodes 2 python train.py");
  }
  ManifestOptions manifest;
  manifest.kind = flags.manifest_kind;
  manifest.name = flags.job_name.empty() ? "hvdrun" : std::exchange(flags.job_name, "");
  manifest.image = flags.image;
  manifest.hvdrun_image = flags.hvdrun_image;
  manifest.secret_name = flags.secret_name;
  manifest.nodes = flags.nodes;
  manifest.gpus = flags.gpus_per_node;
  manifest.port = flags.agent_port;
  manifest.start_timeout_s = flags.start_timeout_s.value_or(kStartTimeoutS);
  manifest.grace_s = flags.grace_s;
  HVD_TRY(check_manifest(manifest));
  HVD_TRY_ASSIGN(manifest.secret, launch::make_call_secret());
  flags.launcher = "kubernetes";
  flags.key_file = "key";
  HVD_TRY(check_no_job_file_flags(flags));
  if (const std::string names = unset_variables(flags); !names.empty()) {
    return Error(Code::kInvalid, names + ": no such variable here; -x NAME=VALUE gives it a value");
  }
  HVD_TRY_ASSIGN(const launch::JobSpec job, make_job(flags));
  manifest.words = words_for_pod(app, job, std::move(words_of_file));
  CliOptions options;
  options.command = Command::kManifest;
  HVD_TRY_ASSIGN(options.help_text, manifest_text(manifest));
  return options;
}

// Notes that --max-np does nothing where no host can join.
void note_no_growth(const Flags& flags, CliOptions& options) {
  const bool is_more = flags.max_np.value_or(flags.np) > flags.np;
  const bool may_grow = options.job.discovery.is_on() || !options.job.join_file.empty();
  if (flags.np > 0 && options.job.restart_limit != 0 && is_more && !may_grow) {
    options.notices.push_back("--max-np: no host can join this job, so it has at most the " + std::to_string(flags.np) +
                              " ranks of -np; hosts join by --host-discovery-script, --watch-hostfile or --join-file");
  }
}

// Notes settings of a discovery that there is none of. Horovod's own launcher passes over them too.
void note_no_discovery(const Flags& flags, CliOptions& options) {
  const bool has_any = flags.slots_per_host || flags.discovery_interval_s || !flags.cooldown_range_s.empty();
  if (has_any && !options.job.discovery.is_on()) {
    options.notices.push_back(
        "--slots-per-host, --discovery-interval and --blacklist-cooldown-range have no effect: the hosts are fixed "
        "without --host-discovery-script or --watch-hostfile");
  }
}

// mpirun takes several programs, a ':' before each further one, which begins with its number of ranks or its hosts. A
// ':' and a '-n' alone may also be words of the program, as for sort -t : -n FILE.
Result<void> check_one_program(const std::vector<std::string>& command) {
  static constexpr std::array<std::string_view, 3> kCounts = {"-np", "--np", "-n"};
  for (std::size_t i = 0; i + 3 < command.size(); ++i) {
    const bool has_count = std::find(kCounts.begin(), kCounts.end(), command[i + 1]) != kCounts.end() &&
                           parse_number<int>(command[i + 2], 1).has_value();
    if (command[i] == ":" && has_count) {
      return Error(Code::kInvalid, "': " + command[i + 1] + " " + command[i + 2] +
                                       "' begins a second program; hvdrun starts one program on all ranks, which may "
                                       "choose what it does by HOROVOD_RANK. If these are words of the program, start "
                                       "it by a script: sh -c '...'");
    }
  }
  return {};
}

}  // namespace

bool asks_for_events(std::vector<std::string> words) {
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
  return has_json_word(app, std::move(words));
}

Result<Flags> parse_submit_words(std::vector<std::string> words) {
  Flags flags;
  CLI::App app;
  app.set_help_flag();
  add_options(app, flags);
  add_submit_options(app, flags);
  HVD_TRY(read_words(app, std::move(words), flags));
  note_given(app, flags);
  return flags;
}

// The commands that have options of their own alone.
const std::map<std::string, Result<CliOptions> (*)(std::vector<std::string>)> kReaders = {
    {"join", parse_join}, {"stacks", parse_stacks}, {"timeline", parse_timeline}, {"top", parse_top}};

Result<CliOptions> parse_command_line(std::vector<std::string> words) {
  CliOptions options;
  if (!words.empty() && is_service_command(words.front())) {
    return parse_service(std::move(words));
  }
  if (!words.empty() && words.front() == "help") {
    return parse_help(words);
  }
  if (const auto reader = words.empty() ? kReaders.end() : kReaders.find(words.front()); reader != kReaders.end()) {
    return reader->second(std::move(words));
  }
  if (const auto command = words.empty() ? kCommands.end() : kCommands.find(words.front());
      command != kCommands.end()) {
    options.command = command->second;
    words.erase(words.begin());
  } else if (!words.empty() && !words.front().starts_with('-')) {
    HVD_TRY(check_no_misspelt_command(words));
  }
  const bool is_bench = options.command == Command::kBench;
  const bool is_submit = options.command == Command::kSubmit;
  options.words = words;
  Flags flags;
  CLI::App app(description(), "hvdrun");
  app.set_help_flag();
  TextRequest texts;
  app.add_flag("-h,--help", texts.help, "Show the options that most jobs need, and end");
  app.add_flag("--help-all", texts.help_all, "Show all options, and end");
  add_options(app, flags);
  if (is_bench) {
    add_bench_options(app, flags);
  }
  if (is_submit) {
    add_submit_options(app, flags);
  }
  if (options.command == Command::kPlan) {
    add_plan_options(app, flags);
  }
  if (options.command == Command::kManifest) {
    add_manifest_options(app, flags);
  }
  auto measure = Result<bench::Measure>(bench::Measure::kAllreduce);
  if (is_bench) {
    measure = read_bench_words(app, std::move(words), flags);
  } else {
    HVD_TRY(read_words(app, std::move(words), flags));
  }
  HVD_TRY_ASSIGN(const bool is_text, read_text_request(app, flags, texts, options));
  if (is_text) {
    return options;
  }
  if (flags.version || flags.check_build) {
    options.command = flags.version ? Command::kVersion : Command::kCheckBuild;
    return options;
  }
  if (is_bench) {
    HVD_TRY_ASSIGN(const bench::Measure what, std::move(measure));
    HVD_TRY_ASSIGN(options.bench, bench_options_of(flags, app, what));
    options.plots = flags.plots;
    options.tune = flags.tune;
  }
  if (flags.np < 0 || (app.count("--np") > 0 && flags.np == 0)) {
    return Error(Code::kInvalid, "-np " + std::to_string(flags.np) + ": expected 1 or more ranks");
  }
  options.json = flags.json;
  options.status_file = flags.status_file;
  options.parent = flags.parent;
  note_given(app, flags);
  HVD_TRY_ASSIGN(const bool is_batch, is_for_slurm(options.command, flags));
  if (is_batch) {
    options.batch_words = words_for_batch(app, flags);
  }
  if (is_batch || is_submit || !flags.cluster.empty()) {
    options.flags = std::move(flags);
    return options;
  }
  if (options.command == Command::kManifest) {
    return read_manifest(std::move(flags), app);
  }
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
    return Error(Code::kInvalid, "no command given; as in: hvdrun -np 2 python train.py; see hvdrun --help");
  }
  HVD_TRY(check_one_program(flags.command));
  const bool is_of_named_hosts =
      options.command == Command::kPlan || options.command == Command::kCheck || options.command == Command::kBench;
  if (is_of_named_hosts && (!flags.host_discovery_script.empty() || flags.watch_hostfile)) {
    return Error(Code::kInvalid,
                 std::string(options.command == Command::kPlan    ? "plan"
                             : options.command == Command::kCheck ? "check"
                                                                  : "bench") +
                     " runs no discovery of hosts; name those that there are at the beginning with -H, without "
                     "--host-discovery-script and --watch-hostfile");
  }
  HVD_TRY_ASSIGN(options.job, make_job(flags));
  options.notices = notices_of(flags, options.job);
  if (options.command == Command::kCheck && options.job.launcher == launch::LauncherKind::kKubernetes) {
    return Error(Code::kInvalid, "check cannot reach pods: they call hvdrun, once there is a job");
  }
  note_no_discovery(flags, options);
  note_no_growth(flags, options);
  return options;
}

}  // namespace hvd::cli
