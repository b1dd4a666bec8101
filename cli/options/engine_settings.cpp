#include "cli/options/engine_settings.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cli/foreign/mpirun_words.h"
#include "launcher/allocations/allocation.h"
#include "launcher/job/host_list.h"
#include "launcher/process/spawn.h"
#include "launcher/transport/local.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

// Returns the command of a batch system that is to start the agents, "slurm" or "jsrun"; empty: the user names none.
std::string step_of(const Flags& flags) {
  const bool is_step = flags.launcher == "slurm" || flags.launcher == "jsrun";
  return flags.jsrun ? "jsrun" : is_step ? flags.launcher : "";
}

// Returns true where the user names a way to start the ranks that is not the one of `step` and `wanted`.
bool has_other_way(const Flags& flags, const std::string& step, const std::string& wanted) {
  if (step == "jsrun" && (flags.gloo || (!flags.launcher.empty() && flags.launcher != step))) {
    return true;
  }
  if (!step.empty() && wanted != (step == "jsrun" ? "lsf" : step)) {
    return true;
  }
  const bool has_own_way = flags.launcher == "ssh" || !flags.rsh.empty();
  return has_own_way && (wanted == "slurm" || step == "jsrun");
}

bool has_hosts(const Flags& flags) {
  return !flags.hosts.empty() || !flags.hostfile.empty() || !flags.host_discovery_script.empty();
}

// Returns the engine that the user insists on; "" for any that is found, "none" where something else says where the
// ranks are to be.
Result<std::string> engine_of(const Flags& flags, launch::LauncherKind launcher) {
  // A word of --launcher means an engine too.
  const std::string step = step_of(flags);
  const std::string wanted = !flags.engine.empty() ? flags.engine : step == "jsrun" ? "lsf" : step;
  const bool is_for_other = launcher != launch::LauncherKind::kOwn;
  if (wanted.empty() && !flags.job_file.empty()) {
    return std::string("none");  // a job file has hosts of its own, or gets those that are asked for
  }
  if (wanted == "none" && !step.empty()) {
    return Error(Code::kInvalid, "--engine none leaves out what --launcher " + step + " asks for; give one of them");
  }
  if (wanted.empty() || wanted == "none") {
    // mpirun starts the ranks on the job's hosts too, and --gloo says only that it does not.
    const bool is_mpirun = launcher == launch::LauncherKind::kMpi;
    const bool has_way = (!flags.launcher.empty() && !is_mpirun) || !flags.rsh.empty();
    return wanted == "none" || has_hosts(flags) || has_way || (is_for_other && !is_mpirun) ? std::string("none")
                                                                                           : std::string();
  }
  const std::string flag = !flags.engine.empty() ? "--engine " + wanted
                           : flags.jsrun         ? "--jsrun"
                                                 : "--launcher " + step;
  if (has_hosts(flags)) {
    return Error(Code::kInvalid, flag + " takes the hosts of the job in which hvdrun runs; give it without -H, " +
                                     "--hostfile and --host-discovery-script");
  }
  if (is_for_other || has_other_way(flags, step, wanted)) {
    return Error(Code::kInvalid, flag + " and another way to start the ranks exclude each other");
  }
  return wanted;
}

// Takes the nodes of a job on which the batch system's own command starts the agents.
void take_step(launch::LauncherKind launcher, launch::Allocation found, launch::JobSpec& job) {
  job.launcher = launcher;
  job.hosts = std::move(found.hosts);
  job.slots_are_gpus = found.slots_are_gpus;
  job.engine_job = std::move(found.job);
  job.slots_from = std::move(found.slots_from);
  job.engine_gpus = found.gpus;
  job.node_gpus = std::move(found.node_gpus);
}

// Refuses more ranks than the engine has been asked for: the user asks it for more, and names no hosts.
Result<void> check_size(const launch::Allocation& found, int size) {
  int slots = 0;
  for (const launch::HostSpec& host : found.hosts) {
    slots += host.slots;
  }
  return size <= slots || found.slots_from.empty()
             ? Result<void>()
             : Result<void>(Error(Code::kInvalid, std::to_string(size) + " ranks asked for (-np), but " + found.engine +
                                                      "'s job has " + counted(static_cast<std::size_t>(slots), "slot") +
                                                      " (" + found.slots_from + "); ask " + found.engine +
                                                      " for more, or hvdrun for fewer"));
}

// Takes the compute nodes of LSF's job. Its slots there are processors: what the ranks have for themselves is a GPU.
void apply_jsrun(launch::Allocation found, launch::JobSpec& job) {
  found.slots_are_gpus = job.size == 0;
  if (job.size > 0) {
    launch::spread_slots(job.size, found.hosts);
    found.slots_from = "-np";
  }
  take_step(launch::LauncherKind::kJsrun, std::move(found), job);
}

// Takes the hosts of the file that a variable of an MPI names, where the user and the engines name none.
Result<void> apply_host_file(const Flags& flags, launch::JobSpec& job) {
  const bool has_way = job.launcher == launch::LauncherKind::kOwn || job.launcher == launch::LauncherKind::kMpi;
  if (!has_way || has_hosts(flags) || flags.engine == "none") {
    return {};
  }
  HVD_TRY_ASSIGN(const launch::Surroundings here, launch::own_surroundings(job.environment, job.size));
  HVD_TRY_ASSIGN(std::optional<launch::Allocation> found, launch::find_host_file(here));
  if (found) {
    job.allocation = flags.job_file.empty() ? launch::described(*found, job.size)
                                            : found->engine + " names the hosts (" + found->slots_from + ")";
    job.hosts = std::move(found->hosts);
  }
  return {};
}

void apply_slurm(launch::Allocation found, bool is_asked_for, launch::JobSpec& job) {
  // The job's one node, if it is this one, needs no srun.
  const bool is_here = found.hosts.size() == 1 && launch::is_local_host(found.hosts.front().name);
  if (is_here && !is_asked_for && !found.slots_are_gpus) {
    found.hosts.front().name = "localhost";
    job.hosts = std::move(found.hosts);
    return;
  }
  take_step(launch::LauncherKind::kSlurm, std::move(found), job);
}

bool has_other_hosts(const Flags& flags, const launch::JobSpec& job) {
  return !flags.host_discovery_script.empty() || flags.watch_hostfile ||
         std::any_of(job.hosts.begin(), job.hosts.end(),
                     [](const launch::HostSpec& host) { return !launch::is_here(host); });
}

// Returns the way of an mpirun whose settings are there, where the user has named none.
MpirunWay mpirun_way(const Flags& flags, const launch::JobSpec& job) {
  const bool has_way = job.launcher != launch::LauncherKind::kOwn || !flags.launcher.empty() || flags.gloo ||
                       flags.engine == "none" || !flags.rsh.empty() || flags.ssh_port != 0 ||
                       !flags.ssh_identity_file.empty() || !flags.ssh_config.empty();
  return has_way ? MpirunWay() : way_of_mpirun(flags.plm_rsh_agent, flags.plm_rsh_args, job.environment);
}

}  // namespace

Result<void> apply_engine(const Flags& flags, launch::JobSpec& job) {
  HVD_TRY_ASSIGN(const std::string wanted, engine_of(flags, job.launcher));
  if (wanted == "none") {
    return apply_host_file(flags, job);
  }
  HVD_TRY_ASSIGN(const launch::Surroundings here, launch::own_surroundings(job.environment, job.size));
  HVD_TRY_ASSIGN(std::optional<launch::Allocation> found, launch::find_allocation(here, wanted));
  if (!found) {
    return apply_host_file(flags, job);
  }
  if (step_of(flags) != "jsrun") {
    HVD_TRY(check_size(*found, job.size));
  }
  if (found->engine == "Slurm" && job.launcher != launch::LauncherKind::kMpi) {
    apply_slurm(std::move(*found), !wanted.empty(), job);
    return {};
  }
  if (step_of(flags) == "jsrun") {
    apply_jsrun(std::move(*found), job);
    return {};
  }
  job.allocation = launch::described(*found, job.size);
  job.hosts = std::move(found->hosts);
  if (job.launcher == launch::LauncherKind::kMpi) {
    return {};  // it has ways of its own
  }
  const bool has_ssh_words = flags.ssh_port != 0 || !flags.ssh_identity_file.empty() || !flags.ssh_config.empty();
  job.rsh_command = has_ssh_words ? "" : found->rsh;
  return {};
}

namespace {

// Adds a word to the command of ssh where all other hosts have something for it. A host without would get ours in the
// place of what SSH's configuration says; and of a word that is there already ssh takes the first.
void add_places(launch::JobSpec& job, const std::string& word, const char* place,
                const std::function<bool(const launch::HostSpec&)>& has) {
  const auto needs_none = [&has](const launch::HostSpec& host) { return launch::is_here(host) || has(host); };
  if (std::any_of(job.hosts.begin(), job.hosts.end(), has) &&
      std::all_of(job.hosts.begin(), job.hosts.end(), needs_none) && job.rsh_command.find(word) == std::string::npos) {
    job.rsh_command += word + " " + place;
  }
}

}  // namespace

Result<std::string> apply_mpirun_way(const Flags& flags, launch::JobSpec& job) {
  const MpirunWay way = mpirun_way(flags, job);
  const bool is_said = !job.rsh_command.empty() || job.ssh_port != 0;
  if (is_said || way.told_by.empty() || !has_other_hosts(flags, job)) {
    return std::string();
  }
  constexpr int kMostPort = 65'535;
  const auto port = way.ssh_port.empty() ? std::optional(0) : parse_number<int>(way.ssh_port, 1, kMostPort);
  if (!port) {
    return Error(Code::kInvalid, way.told_by + " is '-p " + way.ssh_port +
                                     "', expected a port from 1 to 65535; --launcher ssh leaves it aside");
  }
  job.ssh_port = *port;
  job.rsh_command = way.rsh;
  if (way.is_ssh) {
    add_places(job, " -l", "{user}", [](const launch::HostSpec& host) { return !host.user.empty(); });
    add_places(job, " -p", "{port}", [](const launch::HostSpec& host) { return host.port != 0; });
  }
  return way.told_by;
}

namespace {

// True when the job's command is that of the way, perhaps with the user and port of its hosts.
bool is_rsh_of(const MpirunWay& way, const std::string& command) {
  return command == way.rsh || (way.is_ssh && command.starts_with(way.rsh + " -"));
}

}  // namespace

std::string mpirun_way_notice(const Flags& flags, const launch::JobSpec& job) {
  const MpirunWay way = mpirun_way(flags, job);
  if (way.told_by.empty() && (!flags.plm_rsh_agent.empty() || !flags.plm_rsh_args.empty())) {
    return "-mca plm_rsh_agent and plm_rsh_args have no effect here: hosts are reached otherwise (hvdrun help mpi)";
  }
  const bool is_taken = !way.told_by.empty() && (way.rsh.empty() ? std::to_string(job.ssh_port) == way.ssh_port
                                                                 : is_rsh_of(way, job.rsh_command));
  return is_taken ? "other hosts are reached by '" + (way.rsh.empty() ? "ssh -p " + way.ssh_port : way.rsh) + "' (" +
                        way.told_by + "); --launcher ssh leaves that aside"
                  : "";
}

std::string unused_engine(const Flags& flags, const launch::JobSpec& job) {
  if (!flags.engine.empty() || !flags.hosts.empty() || !flags.hostfile.empty()) {
    return "";
  }
  const auto here = launch::own_surroundings(job.environment, job.size);
  for (const std::string& word : launch::engine_words()) {
    const auto found = here.ok() ? launch::find_allocation(here.value(), word) : here.error();
    if (found.ok() && found.value()) {
      return "; in this job of " + found.value()->engine + " --engine " + word + " takes its hosts";
    }
  }
  return "";
}

Result<void> apply_requeue(const Flags& flags, launch::JobSpec& job) {
  if (!flags.requeue_on_notice) {
    return {};
  }
  job.requeued_job = launch::value_in(job.environment, "SLURM_JOB_ID");
  return job.requeued_job.empty()
             ? Result<void>(Error(Code::kInvalid,
                                  "--requeue-on-notice is for a batch job of Slurm, and SLURM_JOB_ID is not set; as in "
                                  "hvdrun submit --engine slurm --requeue-on-notice"))
             : Result<void>();
}

}  // namespace hvd::cli
