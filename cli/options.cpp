#include "cli/options.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "launcher/job/host_list.h"
#include "launcher/job/hostfile.h"
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
  double start_timeout_s = 60;
  double grace_s = 10;
  bool no_tags = false;
  bool quiet = false;
  bool verbose = false;
  bool check_build = false;
  bool json = false;
  bool version = false;
  int ssh_port = 0;
  std::string ssh_identity_file;
  std::string ssh_config;
  std::string rsh;
  std::vector<std::string> command;
};

constexpr const char* kDescription =
    "Runs a command as the ranks of one job, on this machine or on several hosts over SSH.\n"
    "  hvdrun -np 2 python train.py                        two ranks here\n"
    "  hvdrun -np 4 -H node1:2,node2:2 python train.py     two on each of two hosts\n"
    "  hvdrun plan -np 4 -H node1:2,node2:2 python x.py    show what would run where; start nothing";

void add_options(CLI::App& app, Raw& raw) {
  app.add_option("--np,--num-proc", raw.np, "Number of ranks; default: one per slot of the hosts")->type_name("N");
  app.add_option("-H,--hosts", raw.hosts, "Hosts with their slots, as in node1:4,user@node2:4; default: this machine")
      ->type_name("LIST");
  app.add_option("--hostfile", raw.hostfile, "File with a host a line: 'node1 slots=4' or 'node1:4'")
      ->type_name("FILE");
  app.add_option("-x", raw.env, "Set (NAME=VALUE) or pass on (NAME) an environment variable to all ranks; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option("--start-timeout", raw.start_timeout_s, "Seconds until all hosts must have answered")
      ->type_name("S")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--grace", raw.grace_s, "Seconds between the first signal and SIGKILL when the job is stopped")
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
  app.add_flag("--no-tags", raw.no_tags, "Do not put [rank]<stdout>: in front of the ranks' lines");
  app.add_flag("-q,--quiet", raw.quiet, "No words of hvdrun's own unless the job fails");
  app.add_flag("--verbose", raw.verbose, "Tell each step");
  app.add_flag("--json", raw.json, "plan: print JSON");
  app.add_flag("--check-build", raw.check_build, "Show what this build can do and what is missing, and end");
  app.add_flag("-v,--version", raw.version, "Show the version, and end");
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

Result<std::vector<std::pair<std::string, std::string>>> user_env_of(const std::vector<std::string>& entries) {
  std::vector<std::pair<std::string, std::string>> env;
  for (const std::string& entry : entries) {
    const auto equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (name.empty()) {
      return Error(Code::kInvalid, "-x '" + entry + "': expected NAME or NAME=VALUE");
    }
    if (equals != std::string::npos) {
      env.emplace_back(name, entry.substr(equals + 1));
      continue;
    }
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) {
      return Error(Code::kInvalid,
                   "-x " + name + ": no such variable here; give it a value with -x " + name + "=VALUE");
    }
    env.emplace_back(name, value);
  }
  return env;
}

Duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
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

Result<launch::JobSpec> job_of(const Raw& raw) {
  launch::JobSpec job;
  job.size = raw.np;
  HVD_TRY_ASSIGN(job.hosts, hosts_of(raw));
  HVD_TRY_ASSIGN(job.user_env, user_env_of(raw.env));
  HVD_TRY_ASSIGN(job.cwd, working_directory());
  HVD_TRY_ASSIGN(job.agent_path, agent_path());
  job.argv = raw.command;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    job.environment.emplace_back(*entry);
  }
  job.start_timeout = seconds_of(raw.start_timeout_s);
  job.grace = seconds_of(raw.grace_s);
  job.tags = !raw.no_tags;
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

// "-np" and other single-dash long names of horovodrun, which CLI11 would read as "-n p".
void normalise(std::vector<std::string>& words) {
  for (std::string& word : words) {
    if (word == "-np") {
      word = "--np";
    } else if (word == "-cb") {
      word = "--check-build";
    } else if (word == "-hostfile") {
      word = "--hostfile";
    } else if (word.rfind("-np=", 0) == 0) {
      word = "-" + word;
    }
  }
}

// Splits hvdrun's own words from the command, which begins at the first word that is not an option or its value.
std::size_t command_begin(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      return i;
    }
    if (word.size() < 2 || word.front() != '-') {
      return i;
    }
    const bool has_own_value = word.find('=') != std::string::npos || (word[1] != '-' && word.size() > 2);
    const CLI::Option* option = app.get_option_no_throw(word.substr(0, word.find('=')));
    if (option != nullptr && option->get_expected_max() > 0 && option->get_items_expected_max() > 0 && !has_own_value) {
      ++i;
    }
  }
  return words.size();
}

Result<void> read_words(CLI::App& app, std::vector<std::string> words, Raw& raw) {
  normalise(words);
  const std::size_t begin = command_begin(app, words);
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

}  // namespace

Result<CliOptions> parse_command_line(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  CliOptions options;
  if (!words.empty() && (words.front() == "plan" || words.front() == "run")) {
    options.command = words.front() == "plan" ? Command::kPlan : Command::kRun;
    words.erase(words.begin());
  }
  Raw raw;
  CLI::App app(kDescription, "hvdrun");
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
  HVD_TRY_ASSIGN(options.job, job_of(raw));
  return options;
}

}  // namespace hvd::cli
