#include "cli/options/job_settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "cli/options/engine_settings.h"
#include "cli/options/out_file.h"
#include "launcher/command/rsh_template.h"
#include "launcher/engines/kubernetes_gang.h"
#include "launcher/job/host_list.h"
#include "launcher/job/hostfile.h"
#include "launcher/job/metrics_place.h"
#include "launcher/job/text_file.h"
#include "launcher/live/live_folder.h"
#include "launcher/process/own_process.h"
#include "launcher/process/spawn.h"
#include "launcher/transport/local.h"
#include "launcher/transport/rank_limits.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/open_files.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

constexpr double kDefaultStartTimeoutS = 60;
constexpr double kDefaultHeartbeatS = 10;
constexpr double kLeastHeartbeatS = 0.1;
constexpr double kMostHeartbeatS = 3600;
constexpr double kDefaultElasticTimeoutS = 600;
constexpr int kDefaultRestarts = 10;
constexpr std::size_t kMostToken = 4096;
constexpr Duration kForEver = std::chrono::hours(24 * 365);  // longer than any job
const std::map<std::string, launch::BindMode> kBindModes = {
    {"none", launch::BindMode::kNone}, {"core", launch::BindMode::kCore}, {"numa", launch::BindMode::kNuma}};

Result<launch::HostList> hosts_of(const Flags& flags) {
  if (!flags.hosts.empty() && !flags.hostfile.empty()) {
    return Error(Code::kInvalid, "give either -H or --hostfile, not both");
  }
  if (!flags.host_discovery_script.empty() || flags.watch_hostfile) {
    return launch::HostList{};  // they are not known before the command has run
  }
  if (!flags.hostfile.empty()) {
    return launch::read_hostfile(flags.hostfile);
  }
  if (!flags.hosts.empty()) {
    return launch::parse_host_list(flags.hosts);
  }
  return launch::HostList{launch::HostSpec{"localhost", "", 0, std::max(flags.np, 1)}};
}

void set_variable(launch::Settings& env, const std::string& name, const std::string& value) {
  std::erase_if(env, [&name](const auto& pair) { return pair.first == name; });
  env.emplace_back(name, value);
}

Result<void> apply_user_env(launch::Settings& env, const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    const auto equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (name.empty()) {
      return Error(Code::kInvalid, "-x '" + entry + "': expected NAME or NAME=VALUE");
    }
    if (equals != std::string::npos) {
      set_variable(env, name, entry.substr(equals + 1));
      continue;
    }
    if (const char* value = std::getenv(name.c_str())) {  // one that is not set is passed over, as mpirun does
      set_variable(env, name, value);
    }
  }
  return {};
}

// Returns what is set for all ranks, later ones winning: configuration file, flags, -x. The rest is inherited.
Result<launch::Settings> user_env_of(const Flags& flags) {
  launch::Settings env;
  if (!flags.config_file.empty()) {
    HVD_TRY_ASSIGN(env, launch::read_config_file(flags.config_file));
  }
  for (const auto& [name, value] : flags.settings) {
    set_variable(env, name, value);
  }
  if (flags.tcp) {
    set_variable(env, "NCCL_IB_DISABLE", "1");
  }
  if (!flags.interfaces.empty()) {
    std::string list;
    for (const std::string& interface : flags.interfaces) {
      list += (list.empty() ? "" : ",") + interface;
    }
    set_variable(env, "HOROVOD_GLOO_IFACE", list);
    set_variable(env, "NCCL_SOCKET_IFNAME", list);
  }
  HVD_TRY(apply_user_env(env, flags.env));
  return env;
}

Duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Returns a time in seconds from a flag, else from a variable that has the flag's bounds.
Result<double> seconds_from(const std::optional<double>& flag, const char* variable, double usual, double least = 0,
                            double most = 1e6) {
  const char* inherited = std::getenv(variable);
  if (flag || inherited == nullptr || *inherited == '\0') {
    return flag.value_or(usual);
  }
  const std::string_view text = inherited;
  const std::optional<double> seconds = parse_number<double>(text, least, most);
  if (!seconds || *seconds == 0) {
    return Error(Code::kInvalid,
                 std::string(variable) + " is '" + std::string(text) + "', expected " +
                     (least > 0 ? duration_text(seconds_of(least)) + " to " + duration_text(seconds_of(most))
                                : std::string("seconds above 0")));
  }
  return *seconds;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// True when the terminal understands cursor movements and colours.
bool has_able_terminal() {
  const char* name = std::getenv("TERM");
  return name != nullptr && std::string_view(name) != "dumb" && *name != '\0';
}

// Follows no-color.org, then bixense.com/clicolors; otherwise a terminal gets colours.
bool wants_color(const Flags& flags, int fd) {
  if (flags.color != "auto" || is_set("NO_COLOR")) {
    return flags.color == "always";
  }
  const bool is_forced = is_set("CLICOLOR_FORCE") && std::string_view(std::getenv("CLICOLOR_FORCE")) != "0";
  return is_forced || (has_able_terminal() && ::isatty(fd) == 1);
}

// Checks the command before any host is tried.
Result<void> check_rsh(const launch::JobSpec& job) {
  HVD_TRY_ASSIGN(const launch::RshTemplate command, launch::RshTemplate::parse(job.rsh_command));
  if (!job.ssh_identity_file.empty() || !job.ssh_config_file.empty()) {
    return Error(Code::kInvalid, "-i and --ssh-config mean nothing to --rsh; write them into its command");
  }
  if (job.ssh_port != 0 && !command.has("{port}")) {
    return Error(Code::kInvalid, "-p means nothing to an --rsh without {port}; as in --rsh 'ssh -p {port} {host}'");
  }
  for (const launch::HostSpec& host : job.hosts) {
    if (launch::choose_transport(job, host) == launch::TransportKind::kRsh) {
      HVD_TRY(command.words({host.name, host.user, host.port}, {}));
    }
  }
  return {};
}

Result<launch::LauncherKind> launcher_of(const Flags& flags) {
  const bool has_words_for_mpi = !flags.mpi_args.empty() || !flags.binding_args.empty();
  const bool has_own_way = flags.gloo || flags.jsrun || !flags.launcher.empty() || !flags.rsh.empty();
  // Scripts for horovodrun, which takes mpirun where it can, give words for mpirun without --mpi.
  if (has_words_for_mpi && flags.asks_for_elastic() && !has_own_way && !flags.mpi) {
    return launch::LauncherKind::kOwn;  // as horovodrun: elastic ranks are never started by mpirun
  }
  bool wants_mpi = flags.mpi || flags.launcher == "mpi" || (has_words_for_mpi && !has_own_way);
  if (!wants_mpi && !flags.gloo && flags.launcher.empty() && !flags.config_file.empty()) {
    HVD_TRY_ASSIGN(const std::string controller, launch::read_config_controller(flags.config_file));
    wants_mpi = controller == "mpi";
  }
  if (wants_mpi && (flags.gloo || flags.launcher == "ssh")) {
    return Error(Code::kInvalid, "--mpi and --launcher mpi are the opposite of --gloo and --launcher ssh; give one");
  }
  if (flags.launcher == "spark") {
    if (wants_mpi || flags.driver_fd < 0) {
      return Error(Code::kInvalid, "--launcher spark is how horovod.spark.run starts hvdrun; call that from Python");
    }
    return launch::LauncherKind::kSpark;
  }
  if (!wants_mpi && has_words_for_mpi) {
    return Error(Code::kInvalid,
                 "--mpi-args and --binding-args are for mpirun, and exclude every other way to start the ranks");
  }
  if (flags.launcher == "kubernetes") {
    return wants_mpi ? Result<launch::LauncherKind>(
                           Error(Code::kInvalid, "--mpi and --launcher kubernetes exclude each other"))
                     : launch::LauncherKind::kKubernetes;
  }
  return wants_mpi ? launch::LauncherKind::kMpi : launch::LauncherKind::kOwn;
}

// Returns where the job's metrics can be asked for; a place that is off where none is given.
Result<launch::MetricsPlace> metrics_place_of(const Flags& flags) {
  if (flags.metrics_listen.empty()) {
    return flags.metrics_token.empty()
               ? Result<launch::MetricsPlace>(launch::MetricsPlace())
               : Error(Code::kInvalid, "--metrics-token says nothing without --metrics-listen PLACE");
  }
  std::string token;
  if (!flags.metrics_token.empty()) {
    HVD_TRY_ASSIGN(token, launch::read_text_file(flags.metrics_token, "the file of --metrics-token", kMostToken));
    token.erase(std::min(token.find_first_of(" \t\r\n"), token.size()));
    if (token.empty()) {
      return Error(Code::kInvalid, "--metrics-token " + flags.metrics_token + ": the file holds no token");
    }
  }
  const auto place = launch::parse_metrics_place(flags.metrics_listen, token);
  return place.ok() ? place : place.error().with_context("--metrics-listen");
}

// Returns the file of the job's page; empty: none.
Result<std::string> page_of(const Flags& flags) {
  if (!flags.report.empty()) {
    HVD_TRY(check_out_file("--report", flags.report, ".html"));
  }
  return flags.report;
}

Result<void> take_spans(const Flags& flags, launch::JobSpec& job) {
  if (!flags.spans.empty()) {
    HVD_TRY(check_out_file("--spans", flags.spans, ".json"));
    job.spans = flags.spans;
    job.trace_parent = launch::value_in(own_environment(), "TRACEPARENT");
  }
  return {};
}

// Takes the pods that a manifest has made; who they are is known when they call.
Result<void> apply_kubernetes(const Flags& flags, launch::JobSpec& job) {
  if (job.launcher != launch::LauncherKind::kKubernetes) {
    return flags.nodes == 0 && flags.key_file.empty()
               ? Result<void>()
               : Result<void>(Error(Code::kInvalid, "--nodes and --key-file are for --launcher kubernetes"));
  }
  if (!flags.hosts.empty() || !flags.hostfile.empty() || !flags.job_file.empty() || !flags.rsh.empty()) {
    return Error(Code::kInvalid,
                 "--launcher kubernetes takes the pods that call it; give it without -H, --hostfile, --rsh and -f");
  }
  if (flags.nodes == 0 || flags.key_file.empty()) {
    return Error(Code::kInvalid,
                 "--launcher kubernetes needs --nodes N and --key-file FILE; hvdrun manifest writes them");
  }
  if (job.size > 0 && job.size < flags.nodes) {
    return Error(Code::kInvalid, "-np " + std::to_string(job.size) + " leaves some of --nodes " +
                                     std::to_string(flags.nodes) + " without a rank");
  }
  job.hosts = launch::unnamed_pods(flags.nodes);
  job.slots_are_gpus = job.size == 0;
  if (job.size > 0) {
    launch::spread_slots(job.size, job.hosts);
  }
  job.agent_port = flags.agent_port;
  job.key_file = flags.key_file;
  return {};
}

// Returns mpirun's words for hvdrun's -p and -i.
std::vector<std::string> mpirun_words_of_ssh(const Flags& flags) {
  std::string words = flags.ssh_port == 0 ? "" : "-p " + std::to_string(flags.ssh_port);
  if (!flags.ssh_identity_file.empty()) {
    add_to_list(words, "-i " + quoted_word(flags.ssh_identity_file), " ");
  }
  return words.empty() ? std::vector<std::string>() : std::vector<std::string>{"--mca", "plm_rsh_args", words};
}

// Refuses options for hvdrun's own ways to other hosts, which mpirun would silently ignore.
Result<void> apply_mpi(const Flags& flags, launch::JobSpec& job) {
  if (!flags.rsh.empty() || !flags.ssh_config.empty()) {
    return Error(Code::kInvalid,
                 "--rsh and --ssh-config mean nothing to mpirun, which reaches other hosts by the ssh command "
                 "(~/.ssh/config); -p and -i are handed to it");
  }
  for (const launch::HostSpec& host : job.hosts) {
    if (!host.user.empty() || host.port != 0) {
      return Error(Code::kInvalid, "user and port of " + host.name +
                                       " mean nothing to mpirun; write them into ~/.ssh/config (User, Port)");
    }
  }
  if (job.bind != launch::BindMode::kNone && !flags.binding_args.empty()) {
    return Error(Code::kInvalid, "--bind and --binding-args both bind the ranks; give one");
  }
  const auto words_of = [](const std::string& text, const char* flag) {
    const auto words = launch::split_shell_words(text);
    return words.ok() ? words : Result<std::vector<std::string>>(words.error().with_context(flag));
  };
  job.mpi_args = mpirun_words_of_ssh(flags);
  HVD_TRY_ASSIGN(const std::vector<std::string> own, words_of(flags.mpi_args, "--mpi-args"));
  job.mpi_args.insert(job.mpi_args.end(), own.begin(), own.end());
  HVD_TRY_ASSIGN(job.binding_args, words_of(flags.binding_args, "--binding-args"));
  return {};
}

Result<void> apply_input(const std::string& word, launch::JobSpec& job) {
  if (word == "all" || word == "none") {
    job.input = word == "all" ? launch::InputMode::kAll : launch::InputMode::kNone;
    return {};
  }
  job.input = launch::InputMode::kOne;
  if (word.empty()) {
    return {};
  }
  const std::optional<int> rank = parse_number<int>(word, 0);
  if (!rank) {
    return Error(Code::kInvalid, "--stdin '" + word + "': expected a rank's number, all or none");
  }
  job.input_rank = *rank;
  return {};
}

Result<launch::ShownRanks> shown_ranks_of(const Flags& flags) {
  if (flags.show_ranks.empty()) {
    return launch::ShownRanks();
  }
  const auto ranks = launch::ShownRanks::parse(flags.show_ranks);
  return ranks.ok() ? ranks : ranks.error().with_context("--show-ranks");
}

Result<void> apply_discovery(const Flags& flags, launch::JobSpec& job) {
  launch::HostDiscovery& discovery = job.discovery;
  discovery.script = flags.host_discovery_script;
  discovery.hostfile = flags.watch_hostfile ? flags.hostfile : "";
  if (flags.watch_hostfile && flags.hostfile.empty()) {
    return Error(Code::kInvalid, "--watch-hostfile says nothing without --hostfile FILE");
  }
  if (!discovery.script.empty() && (!flags.hosts.empty() || !flags.hostfile.empty())) {
    return Error(Code::kInvalid, "--host-discovery-script names the hosts; give it without -H and --hostfile");
  }
  if (!discovery.is_on()) {
    return {};
  }
  if (job.launcher != launch::LauncherKind::kOwn) {
    return Error(Code::kInvalid,
                 "--host-discovery-script and --watch-hostfile are for hosts that hvdrun itself reaches, and not for "
                 "--launcher");
  }
  discovery.slots = flags.slots_per_host.value_or(0);
  discovery.interval = seconds_of(flags.discovery_interval_s.value_or(1));
  discovery.most_ranks = flags.max_np.value_or(0);
  job.least_ranks = flags.min_np.value_or(std::max(flags.np, 1));
  if (!flags.cooldown_range_s.empty()) {
    discovery.cooldown_least = seconds_of(flags.cooldown_range_s.front());
    discovery.cooldown_most = seconds_of(flags.cooldown_range_s.back());
  } else if (flags.exclude_failed_hosts) {
    discovery.cooldown_least = discovery.cooldown_most = kForEver;
  }
  return discovery.cooldown_least <= discovery.cooldown_most
             ? Result<void>()
             : Error(Code::kInvalid, "--blacklist-cooldown-range: the first number is the smaller one");
}

Result<void> apply_joining(const Flags& flags, launch::JobSpec& job) {
  if (flags.join_file.empty()) {
    return {};
  }
  if (job.launcher == launch::LauncherKind::kMpi) {
    return Error(Code::kInvalid, "--join-file is not for --launcher mpi, which starts the ranks where it likes");
  }
  job.join_file = flags.join_file;
  job.discovery.most_ranks = flags.max_np.value_or(0);
  return {};
}

Result<void> apply_elastic(const Flags& flags, launch::JobSpec& job) {
  HVD_TRY(apply_discovery(flags, job));
  HVD_TRY(apply_joining(flags, job));
  const bool may_grow = job.discovery.is_on() || !job.join_file.empty();
  job.restart_limit = flags.asks_for_elastic() ? flags.elastic_restarts.value_or(kDefaultRestarts) : 0;
  if (job.restart_limit == 0 && (flags.min_np || may_grow)) {
    return Error(Code::kInvalid, std::string(flags.min_np ? "--min-np" : "hosts that join and leave") +
                                     " with --elastic-restarts 0: an elastic job restarts at least one rank");
  }
  if (job.restart_limit == 0) {
    return {};
  }
  const std::string np = "-np " + std::to_string(flags.np);
  if (flags.np > 0 && flags.min_np.value_or(flags.np) > flags.np) {
    return Error(Code::kInvalid, np + " is below --min-np " + std::to_string(*flags.min_np));
  }
  if (flags.np > 0 && flags.max_np.value_or(flags.np) < flags.np) {
    return Error(Code::kInvalid, np + " is above --max-np " + std::to_string(*flags.max_np));
  }
  if (job.launcher == launch::LauncherKind::kMpi) {
    return Error(Code::kInvalid, "mpirun restarts no rank: elastic jobs are for the other launchers");
  }
  job.least_ranks = flags.min_np.value_or(job.least_ranks);
  job.reset_limit = flags.reset_limit;
  job.excludes_failed_hosts = flags.exclude_failed_hosts;
  HVD_TRY_ASSIGN(const double timeout_s,
                 seconds_from(flags.elastic_timeout_s, "HOROVOD_ELASTIC_TIMEOUT", kDefaultElasticTimeoutS));
  job.elastic_timeout = seconds_of(timeout_s);
  job.elastic_wait = seconds_of(flags.elastic_wait_s.value_or(0));
  if (flags.elastic == "restart") {
    const bool can_start_anew =
        job.launcher == launch::LauncherKind::kOwn ||
        (job.launcher == launch::LauncherKind::kSlurm && !job.slots_are_gpus);  // jsrun cannot leave a lost node out
    if (!can_start_anew) {
      return Error(Code::kInvalid,
                   "--elastic restart is for hosts whose agents hvdrun starts itself, also in a job of Slurm "
                   "with -np; here they call once");
    }
    if (flags.reset_limit || flags.exclude_failed_hosts) {
      return Error(
          Code::kInvalid,
          "--elastic restart goes by --elastic-restarts: --reset-limit and --exclude-failed-hosts are for ranks "
          "that go on without the lost one");
    }
    if (!job.join_file.empty()) {
      return Error(Code::kInvalid,
                   "--elastic restart begins with the hosts that are known then: nobody joins by --join-file");
    }
    job.fresh.limit = std::exchange(job.restart_limit, 0);
  }
  return {};
}

// Refuses words about GPUs that contradict each other: one of the two is a mistake.
Result<void> check_gpus(const launch::JobSpec& job) {
  for (const launch::HostSpec& host : job.hosts) {
    if (job.gpus == launch::GpuMode::kNone && !host.gpus.empty()) {
      return Error(Code::kInvalid, "the host list names GPUs of " + host.name + ", and --gpus none leaves all alone");
    }
  }
  for (const auto& [name, value] : job.user_env) {
    const bool names_gpus = name.ends_with("_VISIBLE_DEVICES") || name == "ZE_AFFINITY_MASK";
    if (job.gpus == launch::GpuMode::kOne && names_gpus && value.find(',') != std::string::npos) {
      return Error(Code::kInvalid, "-x " + name + "=" + value +
                                       " shows each rank all of these GPUs, and --gpus one only one; name them in the "
                                       "host list, as in -H localhost:2@0,1");
    }
  }
  return {};
}

}  // namespace

Result<std::string> agent_path() {
  HVD_TRY_ASSIGN(const std::string self, own_program());
  const std::string path = self.substr(0, self.rfind('/')) + "/hvdrun-agent";
  if (::access(path.c_str(), X_OK) != 0) {
    return Error::from_errno("the agent executable is missing beside hvdrun: " + path)
        .with_context("broken installation");
  }
  return path;
}

launch::GpuMode gpu_mode_of(const std::string& word) {
  return word == "local" ? launch::GpuMode::kLocal : word == "one" ? launch::GpuMode::kOne : launch::GpuMode::kNone;
}

std::string unset_variables(const Flags& flags) {
  std::string names;
  for (const std::string& entry : flags.env) {
    if (entry.find('=') == std::string::npos && std::getenv(entry.c_str()) == nullptr) {
      add_to_list(names, "-x " + entry);
    }
  }
  return names;
}

std::vector<std::string> notices_of(const Flags& flags, const launch::JobSpec& job) {
  std::vector<std::string> notices = flags.notices;
  if (const std::string names = unset_variables(flags); !names.empty()) {
    notices.push_back(names + ": no such variable here; -x NAME=VALUE gives it a value");
  }
  if (const std::string way = mpirun_way_notice(flags, job); !way.empty()) {
    notices.push_back(way);
  }
  if (job.launcher != launch::LauncherKind::kMpi && (!flags.mpi_args.empty() || !flags.binding_args.empty())) {
    notices.push_back("--mpi-args and --binding-args have no effect: mpirun starts no elastic ranks, so hvdrun does");
  }
  return notices;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

Result<std::string> state_root() {
  const std::string state = is_set("XDG_STATE_HOME") ? std::getenv("XDG_STATE_HOME") : "";
  const std::string home = is_set("HOME") ? std::getenv("HOME") : "";
  if (!state.starts_with('/') && !home.starts_with('/')) {
    return Error(Code::kInvalid,
                 "neither XDG_STATE_HOME nor HOME is set to an absolute path; one says where records and "
                 "output of jobs are");
  }
  return (state.starts_with('/') ? state : home + "/.local/state") + "/hvdrun";
}

Result<launch::JobSpec> make_job(const Flags& flags) {
  launch::JobSpec job;
  job.size = flags.np;
  HVD_TRY_ASSIGN(job.hosts, hosts_of(flags));
  job.environment = own_environment();
  job.live_dir = launch::LiveFolder::of(job.environment).path();
  HVD_TRY_ASSIGN(job.launcher, launcher_of(flags));
  HVD_TRY(apply_engine(flags, job));
  HVD_TRY(apply_requeue(flags, job));
  HVD_TRY(apply_kubernetes(flags, job));
  if (flags.job_file.empty() && !job.hosts.empty()) {  // the processes of a job file are not the slots
    HVD_TRY(launch::check_rank_count(job.hosts, job.size, launch::limits_of_this_machine()));
  }
  HVD_TRY_ASSIGN(job.user_env, user_env_of(flags));
  // horovodrun reads this variable.
  HVD_TRY_ASSIGN(const double start_timeout_s,
                 seconds_from(flags.start_timeout_s, "HOROVOD_START_TIMEOUT", kDefaultStartTimeoutS));
  HVD_TRY_ASSIGN(const double heartbeat_s, seconds_from(flags.heartbeat_s, "HVD_HEARTBEAT", kDefaultHeartbeatS,
                                                        kLeastHeartbeatS, kMostHeartbeatS));
  HVD_TRY_ASSIGN(job.cwd, working_directory(job.environment));
  HVD_TRY_ASSIGN(job.agent_path, agent_path());
  job.argv = flags.command;
  job.interfaces = flags.interfaces;
  job.open_files = open_files_limit();
  job.gpus = gpu_mode_of(flags.gpus);
  job.bind = kBindModes.at(flags.bind);
  HVD_TRY(apply_input(flags.input, job));
  job.start_timeout = seconds_of(start_timeout_s);
  job.timeout = seconds_of(flags.timeout_s);
  job.timeout_setting = flags.timeout_setting.empty() ? job.timeout_setting : flags.timeout_setting;
  job.is_silence_a_stall = flags.stacks_on_stall_s.has_value();
  job.stall_after = flags.stacks_on_stall_s ? seconds_of(*flags.stacks_on_stall_s)
                                            : launch::stall_check_time(job.user_env, job.environment);
  job.grace = seconds_of(flags.grace_s);
  job.heartbeat = seconds_of(heartbeat_s);
  job.reconnect_timeout = seconds_of(flags.reconnect_timeout_s);
  job.tags = !flags.no_tags;
  job.json_events = flags.json;
  job.gather = flags.gather;
  HVD_TRY_ASSIGN(job.shown_ranks, shown_ranks_of(flags));
  job.timestamps = flags.timestamps;
  job.unkept = flags.unkept_variable.empty() ? "" : launch::value_in(job.environment, flags.unkept_variable);
  job.metrics_file = flags.metrics_file;
  HVD_TRY_ASSIGN(job.metrics_place, metrics_place_of(flags));
  job.sync_dir = flags.sync;
  job.sync_back = flags.sync_back;
  if (job.sync_dir.empty() && !job.sync_back.empty()) {
    return Error(Code::kInvalid, "--sync-back says nothing without --sync: ranks write where they run");
  }
  job.color = {wants_color(flags, STDOUT_FILENO), wants_color(flags, STDERR_FILENO)};
  job.live = has_able_terminal();
  job.answers = ::isatty(STDIN_FILENO) == 1;
  job.output_dir = flags.output_filename;
  if (!flags.output_rotate.empty()) {
    if (flags.output_filename.empty()) {
      return Error(Code::kInvalid, "--output-rotate says nothing without --output-filename DIR");
    }
    HVD_TRY_ASSIGN(job.output_rotation, launch::parse_output_rotation(flags.output_rotate));
  }
  HVD_TRY_ASSIGN(job.page, page_of(flags));
  HVD_TRY(take_spans(flags, job));
  job.quiet = flags.quiet;
  job.verbose = flags.verbose;
  job.ssh_port = flags.ssh_port;
  job.ssh_identity_file = flags.ssh_identity_file;
  job.ssh_config_file = flags.ssh_config;
  job.rsh_command = flags.rsh.empty() ? job.rsh_command : flags.rsh;
  job.fanout = flags.fanout;
  if (job.launcher == launch::LauncherKind::kSpark) {
    job.driver_fd = flags.driver_fd;
  }
  if (job.launcher == launch::LauncherKind::kSpark || job.launcher == launch::LauncherKind::kKubernetes) {
    job.cwd = ".";  // a folder of this machine means nothing there: ranks run in the folders of the tasks and pods
  }
  if (job.launcher == launch::LauncherKind::kMpi) {
    HVD_TRY(apply_mpi(flags, job));
  } else if (const char* rsh = std::getenv("HVD_RSH"); rsh != nullptr && *rsh != '\0' && flags.rsh.empty()) {
    job.rsh_command = rsh;
  }
  HVD_TRY_ASSIGN(const std::string told_by, apply_mpirun_way(flags, job));
  if (!job.rsh_command.empty()) {
    if (const auto checked = check_rsh(job); !checked.ok()) {
      const std::string from = flags.rsh.empty() && told_by.empty() ? "HVD_RSH" : told_by;
      return from.empty() ? checked.error() : checked.error().with_context(from);
    }
  }
  HVD_TRY(apply_elastic(flags, job));
  HVD_TRY(check_gpus(job));
  return job;
}

}  // namespace hvd::cli
