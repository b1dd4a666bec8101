#include "cli/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <map>

#include <CLI/CLI.hpp>

#include "cli/documents.h"
#include "launcher/job/host_list.h"
#include "launcher/job/hostfile.h"
#include "launcher/job/tunable.h"
#include "launcher/run/transport_choice.h"
#include "launcher/transport/rsh_template.h"

namespace hvd::cli {
namespace {

// What CLI11 fills.
struct Raw {
  int np = 0;
  std::string hosts;
  std::string hostfile;
  std::vector<std::string> env;
  std::string config_file;
  double start_timeout_s = 60;
  double timeout_s = 0;
  double grace_s = 10;
  double reconnect_timeout_s = 60;
  std::string output_filename;
  int output_max_mb = 0;
  bool timestamps = false;
  std::string color = "auto";
  std::string gpus = "local";
  bool no_tags = false;
  bool quiet = false;
  bool verbose = false;
  bool check_build = false;
  bool json = false;
  bool version = false;
  std::string document;
  int ssh_port = 0;
  std::string ssh_identity_file;
  std::string ssh_config;
  std::vector<std::string> interfaces;
  bool tcp = false;
  launch::Settings settings;  // of tunables given as flags
  std::string rsh;
  std::vector<std::string> command;
};

const std::vector<std::string> kColorWords = {"auto", "always", "never"};
const std::map<std::string, launch::GpuMode> kGpuModes = {
    {"local", launch::GpuMode::kLocal}, {"one", launch::GpuMode::kOne}, {"none", launch::GpuMode::kNone}};
const std::vector<std::string> kGpuWords = {"local", "one", "none"};
const std::vector<std::string> kDocumentKinds = {"man", "bash", "zsh", "fish"};

// Flags of horovodrun that hvdrun does not do, and why not; with a value or without.
const std::map<std::string, std::string, std::less<>> kRefused = {
    {"--mpi", "there is no MPI controller; hvdrun starts the ranks itself"},
    {"--mpi-args", "there is no mpirun underneath"},
    {"--binding-args", "there is no mpirun underneath"},
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

const std::vector<std::pair<std::string, std::string>> kExamples = {
    {"hvdrun -np 2 python train.py", "two ranks here"},
    {"hvdrun -np 4 -H node1:2,node2:2 python train.py", "two on each of two hosts"},
    {"hvdrun plan -np 4 -H node1:2,node2:2 python train.py", "show what would run where; start nothing"},
};

std::string description() {
  std::string text = "Runs a command as the ranks of one job, on this machine or on several hosts over SSH.";
  for (const auto& [command, meaning] : kExamples) {
    constexpr std::size_t kWidth = 54;
    text += "\n  " + command + std::string(std::max(command.size() + 2, kWidth) - command.size(), ' ') + meaning;
  }
  return text;
}

void add_tunable(CLI::App& app, Raw& raw, const launch::Tunable& tunable) {
  const auto take = [&raw, &tunable](const std::string& value) {
    const auto text = launch::variable_value(tunable, value, tunable.flag);
    if (!text.ok()) {
      throw CLI::ValidationError(text.error().message());
    }
    raw.settings.emplace_back(tunable.variable, text.value());
  };
  constexpr const char* kGroup = "Settings of the runtime (also in --config-file)";
  const std::string help = std::string(tunable.help) + " (" + tunable.variable + ")";
  if (tunable.kind != launch::Tunable::Kind::kSwitch) {
    const bool is_text = tunable.kind == launch::Tunable::Kind::kText;
    app.add_option_function<std::string>(tunable.flag, take, help)->type_name(is_text ? "TEXT" : "N")->group(kGroup);
    return;
  }
  const auto set = [&raw, &tunable](const char* value) {
    return [&raw, &tunable, value] { raw.settings.emplace_back(tunable.variable, value); };
  };
  app.add_flag_callback(tunable.flag, set("1"), help)->group(kGroup);
  app.add_flag_callback(tunable.off_flag, set("0"), "The opposite")->group(kGroup);
}

void add_output_options(CLI::App& app, Raw& raw) {
  app.add_option("--output-filename", raw.output_filename,
                 "Also write what rank N prints to DIR/rank.N/stdout and DIR/rank.N/stderr")
      ->type_name("DIR");
  app.add_option("--output-max-mb", raw.output_max_mb,
                 "MiB after which such a file becomes stdout.1 or stderr.1, in place of the last one; 0: no limit")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30));
  app.add_flag("--prefix-output-with-timestamp", raw.timestamps, "Put the time in front of the ranks' lines");
  app.add_option("--color", raw.color, "Colour the tags by rank; auto: on a terminal, unless NO_COLOR is set")
      ->type_name("WHEN")
      ->check(CLI::IsMember(kColorWords));
  app.add_flag("--no-tags", raw.no_tags, "Do not put [rank]<stdout>: in front of the ranks' lines");
  app.add_flag("-q,--quiet", raw.quiet, "No words of hvdrun's own unless the job fails");
  app.add_flag("--verbose", raw.verbose, "Tell each step");
}

void add_options(CLI::App& app, Raw& raw) {
  app.add_option("--np,--num-proc", raw.np, "Number of ranks; default: one per slot of the hosts")->type_name("N");
  app.add_option("-H,--hosts", raw.hosts, "Hosts with their slots, as in node1:4,user@node2:4; default: this machine")
      ->type_name("LIST");
  app.add_option("--hostfile", raw.hostfile, "File with a host a line: 'node1 slots=4', 'node1:4' or 'node[1-4]'")
      ->type_name("FILE");
  app.add_option("--config-file", raw.config_file, "YAML file with settings of the runtime, in horovodrun's form")
      ->type_name("FILE");
  app.add_option("-x", raw.env, "Set (NAME=VALUE) or pass on (NAME) an environment variable to all ranks; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option("--gpus", raw.gpus,
                 "GPUs that a rank sees: those of the job on its node (local), its own (one), or untouched (none)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kGpuWords));
  app.add_option("--start-timeout", raw.start_timeout_s, "Seconds until all hosts must have answered")
      ->type_name("S")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--timeout", raw.timeout_s, "Seconds after which the job is stopped; 0: never")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--grace", raw.grace_s, "Seconds between the first signal and SIGKILL when the job is stopped")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--reconnect-timeout", raw.reconnect_timeout_s,
                 "Seconds to reach a node again whose connection broke, while its ranks go on; 0: it is lost at once")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("-p,--ssh-port", raw.ssh_port, "SSH port of all hosts; default: as ssh has it")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  app.add_option("-i,--ssh-identity-file", raw.ssh_identity_file, "Private key for SSH, tried first")
      ->type_name("FILE");
  app.add_option("--ssh-config", raw.ssh_config, "SSH configuration file, as in ssh -F")->type_name("FILE");
  app.add_option("--rsh", raw.rsh,
                 "Reach all other hosts by this command, as in 'ssh {host}' or 'kubectl exec -i {host} --'; {user} and "
                 "{port} may be in it. Default: HVD_RSH, else SSH")
      ->type_name("COMMAND");
  app.add_option("--network-interfaces", raw.interfaces, "Network interfaces for NCCL and Gloo; comma list, repeatable")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--tcp", raw.tcp, "No InfiniBand for NCCL (NCCL_IB_DISABLE=1)");
  app.add_flag_callback("--gloo,--disable-cache", [] {}, "Of horovodrun; as hvdrun always does it");
  add_output_options(app, raw);
  app.add_flag("--json", raw.json, "plan: print JSON");
  app.add_flag("--check-build", raw.check_build, "Show what this build can do and what is missing, and end");
  app.add_option("--document", raw.document, "Print the manual page (man) or a shell's completion, and end")
      ->type_name("KIND")
      ->check(CLI::IsMember(kDocumentKinds));
  app.add_flag("-v,--version", raw.version, "Show the version, and end");
  for (const launch::Tunable& tunable : launch::tunables()) {
    add_tunable(app, raw, tunable);
  }
}

Result<std::string> working_directory() {
  std::array<char, PATH_MAX> buffer{};
  if (::getcwd(buffer.data(), buffer.size()) == nullptr) {
    return Error::from_errno("cannot tell the working directory");
  }
  return std::string(buffer.data());
}

// The agent is installed beside hvdrun.
Result<std::string> agent_path() {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t size = ::readlink("/proc/self/exe", buffer.data(), buffer.size() - 1);
  if (size <= 0) {
    return Error::from_errno("cannot tell where hvdrun is (/proc/self/exe)");
  }
  const std::string self(buffer.data(), static_cast<std::size_t>(size));
  const std::string path = self.substr(0, self.rfind('/')) + "/hvdrun-agent";
  if (::access(path.c_str(), X_OK) != 0) {
    return Error::from_errno("the agent executable is missing beside hvdrun: " + path)
        .with_context("broken installation");
  }
  return path;
}

Result<launch::HostList> hosts_of(const Raw& raw) {
  if (!raw.hosts.empty() && !raw.hostfile.empty()) {
    return Error(Code::kInvalid, "give either -H or --hostfile, not both");
  }
  if (!raw.hostfile.empty()) {
    return launch::read_hostfile(raw.hostfile);
  }
  if (!raw.hosts.empty()) {
    return launch::parse_host_list(raw.hosts);
  }
  return launch::HostList{launch::HostSpec{"localhost", "", 0, std::max(raw.np, 1)}};
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
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) {
      return Error(Code::kInvalid,
                   "-x " + name + ": no such variable here; give it a value with -x " + name + "=VALUE");
    }
    set_variable(env, name, value);
  }
  return {};
}

// What is set for all ranks, the stronger later: configuration file, flags, -x. What is not set is inherited.
Result<launch::Settings> user_env_of(const Raw& raw) {
  launch::Settings env;
  if (!raw.config_file.empty()) {
    HVD_TRY_ASSIGN(env, launch::read_config_file(raw.config_file));
  }
  for (const auto& [name, value] : raw.settings) {
    set_variable(env, name, value);
  }
  if (raw.tcp) {
    set_variable(env, "NCCL_IB_DISABLE", "1");
  }
  if (!raw.interfaces.empty()) {
    std::string list;
    for (const std::string& interface : raw.interfaces) {
      list += (list.empty() ? "" : ",") + interface;
    }
    set_variable(env, "HOROVOD_GLOO_IFACE", list);
    set_variable(env, "NCCL_SOCKET_IFNAME", list);
  }
  HVD_TRY(apply_user_env(env, raw.env));
  return env;
}

// horovodrun's variable for --start-timeout.
Result<double> start_timeout_of(const CLI::App& app, const Raw& raw) {
  const char* inherited = std::getenv("HOROVOD_START_TIMEOUT");
  if (app.count("--start-timeout") > 0 || inherited == nullptr || *inherited == '\0') {
    return raw.start_timeout_s;
  }
  const std::string_view text = inherited;
  double seconds = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failed != std::errc() || end != text.data() + text.size() || !(seconds > 0 && seconds <= 1e6)) {
    return Error(Code::kInvalid, "HOROVOD_START_TIMEOUT is '" + std::string(text) + "', expected seconds above 0");
  }
  return seconds;
}

Duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

bool wants_color(const Raw& raw) {
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  const bool is_refused = no_color != nullptr && *no_color != '\0';
  return raw.color == "always" || (raw.color == "auto" && !is_refused && ::isatty(STDOUT_FILENO) == 1);
}

// Whatever is wrong with the command is told before any host is tried.
Result<void> check_rsh(const launch::JobSpec& job) {
  HVD_TRY_ASSIGN(const launch::RshTemplate command, launch::RshTemplate::parse(job.rsh_command));
  if (!job.ssh_identity_file.empty() || !job.ssh_config_file.empty()) {
    return Error(Code::kInvalid, "-i and --ssh-config mean nothing to --rsh; write them into its command");
  }
  if (job.ssh_port != 0 && !command.has("{port}")) {
    return Error(Code::kInvalid, "-p means nothing to an --rsh without {port}; as in --rsh 'ssh -p {port} {host}'");
  }
  for (const launch::HostSpec& host : job.hosts) {
    if (launch::choose_transport(job, host.name) == launch::TransportKind::kRsh) {
      HVD_TRY(command.words({host.name, host.user, host.port}, {}));
    }
  }
  return {};
}

Result<launch::JobSpec> job_of(const CLI::App& app, const Raw& raw) {
  launch::JobSpec job;
  job.size = raw.np;
  HVD_TRY_ASSIGN(job.hosts, hosts_of(raw));
  HVD_TRY_ASSIGN(job.user_env, user_env_of(raw));
  HVD_TRY_ASSIGN(const double start_timeout_s, start_timeout_of(app, raw));
  HVD_TRY_ASSIGN(job.cwd, working_directory());
  HVD_TRY_ASSIGN(job.agent_path, agent_path());
  job.argv = raw.command;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    job.environment.emplace_back(*entry);
  }
  job.gpus = kGpuModes.at(raw.gpus);
  job.start_timeout = seconds_of(start_timeout_s);
  job.timeout = seconds_of(raw.timeout_s);
  job.grace = seconds_of(raw.grace_s);
  job.reconnect_timeout = seconds_of(raw.reconnect_timeout_s);
  job.tags = !raw.no_tags;
  job.timestamps = raw.timestamps;
  job.color = wants_color(raw);
  job.output_dir = raw.output_filename;
  job.output_max_bytes = static_cast<std::uint64_t>(raw.output_max_mb) << 20U;
  job.quiet = raw.quiet;
  job.verbose = raw.verbose;
  job.ssh_port = raw.ssh_port;
  job.ssh_identity_file = raw.ssh_identity_file;
  job.ssh_config_file = raw.ssh_config;
  job.rsh_command = raw.rsh;
  if (const char* rsh = std::getenv("HVD_RSH"); rsh != nullptr && raw.rsh.empty()) {
    job.rsh_command = rsh;
  }
  if (!job.rsh_command.empty()) {
    HVD_TRY(check_rsh(job));
  }
  return job;
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
Result<std::size_t> prepare(const CLI::App& app, std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    if (word == "--" || word.size() < 2 || word.front() != '-') {
      return i;
    }
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (const auto refused = kRefused.find(name); refused != kRefused.end()) {
      return Error(Code::kInvalid, name + ": " + refused->second);
    }
    const auto alias = kAliases.find(name);
    name = completed(app, alias == kAliases.end() ? name : alias->second);
    word = name + (equals == std::string::npos ? "" : word.substr(equals));
    const bool has_own_value = equals != std::string::npos || (word[1] != '-' && word.size() > 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option != nullptr && option->get_expected_max() > 0 && option->get_items_expected_max() > 0 && !has_own_value) {
      ++i;
    }
  }
  return words.size();
}

Result<void> read_words(CLI::App& app, std::vector<std::string> words, Raw& raw) {
  HVD_TRY_ASSIGN(const std::size_t begin, prepare(app, words));
  const bool has_separator = begin < words.size() && words[begin] == "--";
  raw.command.assign(words.begin() + static_cast<std::ptrdiff_t>(begin + (has_separator ? 1 : 0)), words.end());
  words.resize(begin);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return Error(Code::kInvalid, std::string(error.what()) + "; see hvdrun --help");
  }
  return {};
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
      info.words = option == app.get_option_no_throw("--color")      ? kColorWords
                   : option == app.get_option_no_throw("--gpus")     ? kGpuWords
                   : option == app.get_option_no_throw("--document") ? kDocumentKinds
                                                                     : std::vector<std::string>();
    }
    info.help = option->get_description();
    info.group = option->get_group();
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace

Result<CliOptions> parse_command_line(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  CliOptions options;
  if (!words.empty() && (words.front() == "plan" || words.front() == "run")) {
    options.command = words.front() == "plan" ? Command::kPlan : Command::kRun;
    words.erase(words.begin());
  }
  Raw raw;
  CLI::App app(description(), "hvdrun");
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help, "Show this, and end");
  add_options(app, raw);
  HVD_TRY(read_words(app, std::move(words), raw));
  if (help) {
    options.command = Command::kHelp;
    options.help_text = "usage: hvdrun [run|plan] [options] command [arguments]\n" + app.help();
    return options;
  }
  if (!raw.document.empty()) {
    options.command = Command::kHelp;
    HVD_TRY_ASSIGN(options.help_text, make_document(raw.document, describe_options(app), kExamples));
    return options;
  }
  if (raw.version || raw.check_build) {
    options.command = raw.version ? Command::kVersion : Command::kCheckBuild;
    return options;
  }
  if (raw.command.empty()) {
    return Error(Code::kInvalid, "no command given; as in: hvdrun -np 2 python train.py");
  }
  if (raw.np < 0 || (app.count("--np") > 0 && raw.np == 0)) {
    return Error(Code::kInvalid, "-np " + std::to_string(raw.np) + ": expected 1 or more ranks");
  }
  options.json = raw.json;
  HVD_TRY_ASSIGN(options.job, job_of(app, raw));
  return options;
}

}  // namespace hvd::cli
