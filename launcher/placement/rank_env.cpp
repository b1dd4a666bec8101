#include "launcher/placement/rank_env.h"

#include <algorithm>
#include <array>

#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// JAX finds address, size and index only in what Open MPI's launcher sets: "<job>.0;tcp://<ip of rank 0>:<port>". The
// number is any multiple of 4096 that passes JAX's check; JAX derives its port from it.
constexpr int kOpenMpiJob = 4096 * 7;

constexpr std::array<std::string_view, 6> kDefaults = {
    "OMP_NUM_THREADS",    "PYTHONFAULTHANDLER", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_MULTI_RANK_GPU_ENABLE"};

template <std::size_t N>
bool has_prefix_of(std::string_view name, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; });
}

// Returns variables that the user may have set otherwise.
EnvList default_env(const Placement& placement, const NodeFacts& facts, int threads) {
  EnvList env = {
      // After a crash in native code Python still prints the line that it was at, and the job's report shows it.
      {"PYTHONFAULTHANDLER", "1"},
      // torchrun sets this too: a rank whose peer died ends instead of waiting
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
  };
  if (threads > 0) {
    // Every rank that uses all processors makes the job slower than a single rank.
    env.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
  if (placement.nodes.size() > 1 && !facts.interface.empty()) {
    // Without it Gloo listens at the address of the node's own name, which on Debian is loopback, and NCCL may take the
    // bridge of a container engine. "=" means this interface alone, and not all whose names begin so.
    env.emplace_back("GLOO_SOCKET_IFNAME", facts.interface);
    if (facts.has_other_interfaces) {
      env.emplace_back("NCCL_SOCKET_IFNAME", "=" + facts.interface);
    }
  }
  return env;
}

}  // namespace

EnvList rank_env(const Placement& placement, const NodePlan& node, const RankPlan& rank, const NodeFacts& facts,
                 const JobFacts& job, int threads) {
  const auto text = [](int number) { return std::to_string(number); };
  const std::string r = text(rank.rank);
  const std::string size = text(placement.size);
  const std::string local_rank = text(rank.local_rank);
  const std::string local_size = text(node.local_size());
  const std::string cross_rank = text(rank.cross_rank);
  const std::string cross_size = text(rank.cross_size);
  const std::string node_index = text(node.index);
  const std::string node_count = text(static_cast<int>(placement.nodes.size()));
  const std::string port = text(job.master_port);
  const std::string master = host_and_port(job.master_address, std::to_string(job.master_port));
  EnvList env = {
      // hvdrun's own variables (runtime/base/contract.h)
      {contract::kRank, r},
      {contract::kSize, size},
      {contract::kLocalRank, local_rank},
      {contract::kLocalSize, local_size},
      {contract::kCrossRank, cross_rank},
      {contract::kCrossSize, cross_size},
      {contract::kNodeIndex, node_index},
      {contract::kNodeCount, node_count},
      {contract::kNodeAddress, facts.address},
      {contract::kJobId, job.job_id},
      {contract::kAgentSocket, facts.agent_socket},
      {contract::kAgentToken, job.agent_token},
      // Horovod
      {"HOROVOD_RANK", r},
      {"HOROVOD_SIZE", size},
      {"HOROVOD_LOCAL_RANK", local_rank},
      {"HOROVOD_LOCAL_SIZE", local_size},
      {"HOROVOD_CROSS_RANK", cross_rank},
      {"HOROVOD_CROSS_SIZE", cross_size},
      {"HOROVOD_HOSTNAME", node.host.name},
      // torch, and all programs that read its env://
      {"RANK", r},
      {"WORLD_SIZE", size},
      {"LOCAL_RANK", local_rank},
      {"LOCAL_WORLD_SIZE", local_size},
      {"NODE_RANK", node_index},
      {"GROUP_RANK", node_index},
      {"GROUP_WORLD_SIZE", node_count},
      {"ROLE_RANK", r},
      {"ROLE_WORLD_SIZE", size},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", job.master_address},
      {"MASTER_PORT", port},
      // these make Lightning and torch see a launched process rather than an inherited Slurm allocation
      {"TORCHELASTIC_RUN_ID", job.job_id},
      {"TORCHELASTIC_RESTART_COUNT", text(job.fresh.before)},
      {"TORCHELASTIC_MAX_RESTARTS", text(std::max(job.restart_limit, job.fresh.limit))},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      // JAX reads these before it looks for a launcher's variables, from whose job number it would derive the port
      {"JAX_COORDINATOR_ADDRESS", master},
      {"JAX_COORDINATOR_PORT", port},
      {"JAX_NUM_PROCESSES", size},
      {"JAX_PROCESS_ID", r},
      // makes a line appear when it is printed, not when a buffer is full
      {"PYTHONUNBUFFERED", "1"},
  };
  if (!job.has_mpi) {
    // Ranks look as if started by Open MPI, for JAX and scripts. OMPI_UNIVERSE_SIZE is left out: with it, an mpirun
    // that a rank starts would refuse to run as a recursive call (Open MPI 4).
    const EnvList look = {
        {"OMPI_COMM_WORLD_RANK", r},
        {"OMPI_COMM_WORLD_SIZE", size},
        {"OMPI_COMM_WORLD_LOCAL_RANK", local_rank},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size},
        {"OMPI_COMM_WORLD_NODE_RANK", local_rank},
        {"OMPI_MCA_orte_hnp_uri", text(kOpenMpiJob) + ".0;tcp://" + master},
    };
    env.insert(env.end(), look.begin(), look.end());
  }
  if (!facts.hostfile.empty()) {
    env.emplace_back("HVDRUN_HOSTFILE", facts.hostfile);
  }
  if (placement.nodes.size() > 1 && placement.size == static_cast<int>(placement.nodes.size())) {
    // A torchrun on each node, without flags of its own, then joins all nodes into one job.
    const EnvList per_node = {{"PET_NNODES", node_count},
                              {"PET_NODE_RANK", node_index},
                              {"PET_MASTER_ADDR", job.master_address},
                              {"PET_MASTER_PORT", port}};
    env.insert(env.end(), per_node.begin(), per_node.end());
  }
  if (job.restart_limit > 0) {
    env.emplace_back("HOROVOD_ELASTIC", "1");
    env.emplace_back("HOROVOD_ELASTIC_TIMEOUT", text(job.elastic_timeout_s));
    env.emplace_back(contract::kRestartLimit, text(job.restart_limit));
  }
  const EnvList defaults = default_env(placement, facts, threads);
  env.insert(env.end(), defaults.begin(), defaults.end());
  return env;
}

std::vector<std::string> default_variables() {
  return {kDefaults.begin(), kDefaults.end()};
}

bool is_outer_launcher_variable(std::string_view name) {
  static constexpr std::string_view kNames =
      "PET_NNODES SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_TASK_PID PET_NODE_RANK "
      "PET_MASTER_ADDR PET_MASTER_PORT JAX_COORDINATOR_ADDRESS JAX_COORDINATOR_PORT JAX_NUM_PROCESSES "
      "JAX_PROCESS_ID RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE "
      "ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR MASTER_PORT HOROVOD_RANK HOROVOD_SIZE "
      "HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE HOROVOD_HOSTNAME "
      "HOROVOD_GLOO_RENDEZVOUS_ADDR HOROVOD_GLOO_RENDEZVOUS_PORT HOROVOD_CONTROLLER MPI_LOCALRANKID "
      "OMPI_APP_CTX_NUM_PROCS OMPI_NUM_APP_CTX OMPI_COMMAND OMPI_ARGV OMPI_FIRST_RANKS OMPI_FILE_LOCATION "
      "OMPI_UNIVERSE_SIZE OMPI_MCA_ess OMPI_MCA_pmix OMPI_MCA_initial_wdir";
  static constexpr std::array<std::string_view, 7> kPrefixes = {
      "SLURM_STEP", "TORCHELASTIC_", "OMPI_COMM_WORLD_", "OMPI_MCA_orte_", "OMPI_MCA_ess_", "PMIX_", "PMI_"};
  static constexpr std::array<std::string_view, 13> kOwn = {
      contract::kRank,        contract::kSize,        contract::kLocalRank,  contract::kLocalSize,
      contract::kCrossRank,   contract::kCrossSize,   contract::kNodeIndex,  contract::kNodeCount,
      contract::kJobId,       contract::kAgentSocket, contract::kAgentToken, contract::kNodeAddress,
      contract::kRestartLimit};
  return has_word(kNames, name) || has_prefix_of(name, kPrefixes) ||
         std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

bool is_host_bound_variable(std::string_view name) {
  static constexpr std::string_view kNames =
      "HOME USER LOGNAME SHELL MAIL PWD OLDPWD SHLVL _ HOSTNAME TMPDIR DISPLAY WAYLAND_DISPLAY "
      "TERM_SESSION_ID TMUX TMUX_PANE STY WINDOWID INVOCATION_ID KRB5CCNAME X509_USER_PROXY "
      "SLURMD_NODENAME SLURM_CPUS_ON_NODE SLURM_TOPOLOGY_ADDR SLURM_JOB_GPUS GPU_DEVICE_ORDINAL";
  static constexpr std::array<std::string_view, 6> kPrefixes = {"SSH_",       "XDG_",  "DBUS_",
                                                                "BASH_FUNC_", "SUDO_", "HVDRUN_"};
  // The GPUs of the launcher's machine say nothing about another machine's. These are the variables of CUDA, ROCm, HIP
  // and Level Zero.
  static constexpr std::string_view kVisible = "_VISIBLE_DEVICES";
  const bool names_gpus = name == "ZE_AFFINITY_MASK" ||
                          (name.size() >= kVisible.size() && name.substr(name.size() - kVisible.size()) == kVisible);
  return names_gpus || has_word(kNames, name) || has_prefix_of(name, kPrefixes);
}

}  // namespace hvd::launch
