#include "cli/options/job_file_settings.h"

#include <sys/random.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cli/options/engine_settings.h"
#include "cli/options/job_settings.h"
#include "launcher/job/config_mounts.h"
#include "launcher/job/hidden_texts.h"
#include "launcher/job/host_list.h"
#include "launcher/job/nearest_name.h"
#include "launcher/jobfile/mount_command.h"
#include "launcher/jobfile/variable_text.h"
#include "launcher/run/start_plan.h"
#include "launcher/transport/rank_limits.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

constexpr int kMostNodes = 100'000;  // as in the files' schemas

const std::map<std::string, launch::ContainerChoice> kContainers = {{"", launch::ContainerChoice::kAuto},
                                                                    {"auto", launch::ContainerChoice::kAuto},
                                                                    {"podman", launch::ContainerChoice::kPodman},
                                                                    {"docker", launch::ContainerChoice::kDocker},
                                                                    {"apptainer", launch::ContainerChoice::kApptainer},
                                                                    {"none", launch::ContainerChoice::kNone}};

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(name + "=")) {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

// Returns this many random hexadecimal digits. Folders in /tmp are named by them, so nobody must be able to guess them.
Result<std::string> random_digits(std::size_t digits) {
  std::vector<std::uint8_t> bytes(digits / 2);
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  return hex(bytes);
}

Result<void> name_run(Command command, const std::string& given_uuid, launch::JobRunOptions& run) {
  if (command == Command::kPlan) {
    run.id = "ID";
    run.uuid = "UUID";
    return {};
  }
  HVD_TRY_ASSIGN(run.id, random_digits(16));
  if (!given_uuid.empty()) {
    run.uuid = given_uuid;
    return {};
  }
  HVD_TRY_ASSIGN(std::string uuid, random_digits(32));
  uuid[12] = '4';  // marks a random UUID (RFC 4122)
  uuid[16] = '8';
  for (const std::size_t at : {8U, 13U, 18U, 23U}) {
    uuid.insert(at, "-");
  }
  run.uuid = uuid;
  return {};
}

// Fills in the passwords, which the submitting user gives in the environment.
std::vector<launch::FileSystem> with_passwords(std::vector<launch::FileSystem> systems,
                                               const std::vector<std::string>& environment) {
  for (launch::FileSystem& system : systems) {
    if (system.needs_password()) {
      system.password = value_of(
          environment, system.password_variable.empty() ? launch::kPasswordVariable : system.password_variable);
    }
  }
  return systems;
}

Result<launch::MountMap> mount_map_of(const Flags& flags, const std::vector<std::string>& environment) {
  launch::MountMap map;
  map.file_systems = with_passwords(flags.cluster_file_systems, environment);
  for (const std::string& entry : flags.mounts) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || entry.substr(equals + 1).find('/') != 0) {
      return Error(Code::kInvalid, "--mount '" + launch::shown_text(entry) +
                                       "': expected NAME=DIR with an absolute directory, as in --mount data=/data");
    }
    map.named.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (!flags.config_file.empty()) {
    HVD_TRY_ASSIGN(const launch::ConfigMounts mounts, launch::read_config_mounts(flags.config_file));
    map.named.insert(map.named.end(), mounts.begin(), mounts.end());  // after those of flags, so that flags win
  }
  map.named.insert(map.named.end(), flags.cluster_mounts.begin(), flags.cluster_mounts.end());
  map.root = flags.mount_root;
  while (map.root.size() > 1 && map.root.ends_with('/')) {
    map.root.pop_back();
  }
  if (!map.root.empty() && map.root.front() != '/') {
    return Error(Code::kInvalid, "--mount-root '" + launch::shown_text(map.root) + "': expected an absolute directory");
  }
  return map;
}

// The file's values apply unless a flag gives them too.
Result<void> apply_flags(const Flags& flags, launch::JobFile& file, launch::JobSpec& job) {
  if (!flags.job_name.empty()) {
    if (!launch::is_job_name(flags.job_name)) {
      return Error(Code::kInvalid,
                   "--name '" + launch::shown_text(flags.job_name) + "': expected up to 64 letters, digits, - and _");
    }
    file.name = flags.job_name;
  }
  if (job.timeout == Duration::zero() && !flags.has("timeout")) {
    job.timeout = file.timeout;
    job.timeout_setting = file.timeout_setting();
  }
  if (!file.gpus.empty() && flags.gpus == "local" && !flags.has("gpus")) {
    job.gpus = gpu_mode_of(file.gpus);
  }
  job.argv = {"bash"};
  job.hidden = launch::hidden_texts(file.hidden);
  return {};
}

// Notes unused --mount options. A configuration file is not checked, since it may serve many jobs.
void note_unused_maps(const std::vector<std::string>& given, const launch::JobFile& file, launch::Notices& notices) {
  std::vector<std::string> names;
  for (const launch::Mount& mount : file.mounts) {
    names.push_back(mount.name);
  }
  for (const std::string& entry : given) {
    const std::string name = entry.substr(0, entry.find('='));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string near = launch::nearest_name(name, names);
      notices.push_back("--mount " + launch::shown_text(name) + ": the job mounts nothing of that name" +
                        (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
  }
}

// A custom toolkit's processes on other hosts are not started by hvdrun, so nothing mounts anything for them.
void note_mounts_of_master(const launch::JobRun& run, launch::Notices& notices) {
  if (run.job.tool.kind == launch::Toolkit::kCustom && run.layout.nodes.size() > 1 && launch::has_real_mounts(run)) {
    notices.push_back(
        "what the cluster's fileSystems mount is seen by preparation and by the job's own command, and not by what "
        "that "
        "command starts on other nodes; map directories there with --mount NAME=DIR");
  }
}

void note_shell_text(const launch::JobFile& file, launch::Notices& notices) {
  for (const std::string& text : {file.tool.args, file.tool.master_args, file.tool.server_args}) {
    if (const auto words = launch::read_arguments(text); words.ok() && !words.value().is_plain) {
      notices.push_back(launch::error_at(file.file, file.tool.at,
                                         "the arguments hold ; | & < > ( or `, which are passed on as they are: only "
                                         "command lines are shell text")
                            .message());
      return;
    }
  }
}

// Takes a number of ranks as one of nodes, each with as many ranks.
Result<std::optional<int>> nodes_of_ranks(const std::optional<int>& ranks, int per_node, const char* flag) {
  if (ranks && *ranks % per_node != 0) {
    return Error(Code::kInvalid, std::string(flag) + " " + std::to_string(*ranks) + ": each node of the job has " +
                                     std::to_string(per_node) + " processes; give a multiple of it");
  }
  return ranks ? std::optional(*ranks / per_node) : std::nullopt;
}

// Settles how many nodes an elastic job has, in the file and in the flags, which count ranks. `processes` as in
// lay_out().
Result<void> apply_elastic_flags(int processes, Flags& flags, launch::JobFile& file) {
  const bool follows_hosts = !flags.host_discovery_script.empty() || flags.watch_hostfile;
  if (!flags.asks_for_elastic() && !file.is_elastic()) {
    return {};
  }
  if (!file.is_elastic()) {
    HVD_TRY(launch::check_can_be_elastic(file.tool.kind, "elastic options", file.file, file.tool.at));
  }
  const int all = processes > 0 ? processes : file.tool.process_count.value_or(file.node_count);
  const int per_node = std::max(1, all / file.node_count);
  HVD_TRY_ASSIGN(const auto least, nodes_of_ranks(flags.min_np, per_node, "--min-np"));
  HVD_TRY_ASSIGN(const auto most, nodes_of_ranks(flags.max_np, per_node, "--max-np"));
  file.min_nodes = least ? least : file.min_nodes;
  file.max_nodes = most ? most : file.max_nodes;
  if (follows_hosts && !file.max_nodes) {
    file.max_nodes = kMostNodes;
  }
  if (file.least_nodes() > file.most_nodes()) {
    return Error(Code::kInvalid, "the job needs " + std::to_string(file.least_nodes()) +
                                     " nodes (minNodes, --min-np), and may have " + std::to_string(file.most_nodes()) +
                                     " only (maxNodes, --max-np)");
  }
  if (file.is_elastic()) {
    const auto ranks_of = [per_node](int nodes) {
      return static_cast<int>(std::min<std::int64_t>(std::int64_t{nodes} * per_node, launch::kMostRanks));
    };
    flags.min_np = ranks_of(file.least_nodes());
    flags.max_np = file.most_nodes() < kMostNodes ? std::optional(ranks_of(file.most_nodes())) : std::nullopt;
  }
  if (follows_hosts) {
    flags.slots_per_host = per_node;
  }
  return {};
}

// Which hosts there are is known when the job runs; until then its scripts are made for hosts that are not there.
void take_imagined_hosts(const launch::JobFile& file, launch::JobSpec& job) {
  job.discovery.is_slots_of_all = true;
  if (job.hosts.size() < static_cast<std::size_t>(file.least_nodes())) {
    job.hosts.assign(static_cast<std::size_t>(file.least_nodes()),
                     launch::parse_host_list("localhost").value().front());
  }
}

// Makes all scripts once, so that errors in them are reported before anything starts.
Result<void> check_scripts(const launch::JobRun& run) {
  HVD_TRY(launch::check_word_sizes(run));
  for (int rank = 0; rank < run.layout.size(); ++rank) {
    HVD_TRY(launch::process_text(run, rank));
  }
  const std::vector<launch::JobNodeFacts> facts(run.layout.nodes.size());
  launch::JobTexts texts("");
  HVD_TRY(launch::set_up_script(run, facts, 0, texts));
  return {};
}

}  // namespace

Result<launch::JobFileOptions> reading_options(const Flags& flags, const std::vector<std::string>& environment) {
  launch::JobFileOptions reading{flags.storage_account, environment};
  HVD_TRY_ASSIGN(const launch::MountMap map, mount_map_of(flags, environment));
  for (const auto& [name, directory] : map.named) {
    reading.mounts.push_back(name);
  }
  for (const launch::FileSystem& system : map.file_systems) {
    reading.mounts.push_back(system.name);
  }
  if (reading.storage_account.empty()) {
    reading.storage_account = value_of(environment, "AZURE_BATCHAI_STORAGE_ACCOUNT");
  }
  return reading;
}

Result<void> check_no_job_file_flags(const Flags& flags) {
  if (!flags.mounts.empty() || !flags.mount_root.empty() || !flags.storage_account.empty() || !flags.job_name.empty() ||
      !flags.container.empty()) {
    return Error(Code::kInvalid,
                 "--name, --mount, --mount-root, --storage-account-name and --container go with a job file (-f FILE)");
  }
  return {};
}

Result<void> read_job_file_flags(Flags flags, CliOptions& options) {
  if (!flags.elastic.empty() || !flags.join_file.empty()) {
    return Error(Code::kInvalid, std::string(flags.elastic.empty() ? "--join-file" : "--elastic") +
                                     " is for a command, and not for a job file");
  }
  if (!flags.command.empty()) {
    return Error(Code::kInvalid, "'" + launch::shown_text(flags.command.front()) +
                                     "': a job file says what to run; give either -f FILE or a command. A host " +
                                     "file, as mpiexec's -f FILE, is given by --hostfile FILE");
  }
  const std::vector<std::string> environment = own_environment();
  HVD_TRY_ASSIGN(const launch::JobFileOptions reading, reading_options(flags, environment));
  HVD_TRY_ASSIGN(launch::LoadedJobFile loaded, flags.job_text
                                                   ? launch::parse_job_file(*flags.job_text, flags.job_file, reading)
                                                   : launch::read_job_file(flags.job_file, reading));
  launch::JobFile& file = loaded.job;
  if (flags.hosts.empty() && flags.hostfile.empty() && !file.hosts.empty()) {
    for (const std::string& entry : file.hosts) {
      if (const auto parsed = launch::parse_host_list(entry); !parsed.ok()) {
        return launch::error_at(file.file, file.hosts_at, parsed.error().message());
      }
      flags.hosts += (flags.hosts.empty() ? "" : ",") + entry;
    }
  }
  const int processes = std::exchange(flags.np, 0);
  if (processes > 1 && file.tool.kind == launch::Toolkit::kCustom) {
    loaded.notices.push_back("-np has no effect on a custom toolkit, whose command runs once, on the first node");
  }
  HVD_TRY(apply_elastic_flags(processes, flags, file));
  HVD_TRY_ASSIGN(options.job, make_job(flags));
  launch::JobRunOptions run;
  HVD_TRY_ASSIGN(run.mounts, mount_map_of(flags, environment));
  for (const launch::FileSystem& system : run.mounts.file_systems) {
    file.hidden.push_back(system.password);
  }
  if (options.job.discovery.is_on()) {
    take_imagined_hosts(file, options.job);
  }
  auto laid_out = launch::lay_out(file, options.job.hosts, processes);
  if (!laid_out.ok() && options.job.hosts.size() < static_cast<std::size_t>(file.least_nodes())) {
    return Error(laid_out.error().code(), laid_out.error().message() + unused_engine(flags, options.job));
  }
  HVD_TRY_ASSIGN(launch::JobLayout layout, std::move(laid_out));
  if (launch::needs_mpi(file, layout) && flags.launcher.empty() && !flags.gloo && !flags.mpi) {
    flags.mpi = true;
    HVD_TRY_ASSIGN(options.job, make_job(flags));
  }
  HVD_TRY(apply_flags(flags, file, options.job));
  if (const auto possible = launch::check_rank_count(layout.nodes, layout.size(), launch::limits_of_this_machine());
      !possible.ok()) {
    return launch::error_at(file.file, file.tool.at, possible.error().message());
  }
  options.job.hosts = layout.nodes;
  options.job.slots_are_gpus = false;  // the file and its hosts say where its processes are
  options.job.slots_from = processes > 0 ? "-np" : file.file;
  options.job.size = layout.size();
  HVD_TRY(launch::check_input_rank(options.job, options.job.size));
  HVD_TRY(launch::check_shown_ranks(options.job, options.job.size));
  if (flags.engine.empty() && !options.job.allocation.empty()) {  // a variable names the hosts
    loaded.notices.push_back(options.job.allocation);
  }
  note_shell_text(file, loaded.notices);
  note_unused_maps(flags.mounts, file, loaded.notices);
  run.container = kContainers.at(flags.container);
  for (const auto& [name, value] : options.job.user_env) {
    run.overridden.insert_or_assign(name, value);
  }
  run.is_synced = !options.job.sync_dir.empty();
  run.cwd = options.job.cwd;
  HVD_TRY(name_run(options.command, flags.job_uuid, run));
  options.job.name = file.name;
  options.job.uuid = flags.job_uuid;
  HVD_TRY_ASSIGN(options.file, launch::make_job_run(std::move(file), std::move(layout), std::move(run)));
  HVD_TRY(check_scripts(*options.file));
  note_mounts_of_master(*options.file, loaded.notices);
  const launch::Notices of_flags = notices_of(flags, options.job);
  loaded.notices.insert(loaded.notices.end(), of_flags.begin(), of_flags.end());
  options.notices = std::move(loaded.notices);
  return {};
}

}  // namespace hvd::cli
