#include "launcher/allocations/allocation.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "launcher/process/own_process.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

struct EngineKind {
  const char* word;      // of --engine
  const char* variable;  // by which a job of it is recognised, for messages
  const char* place;     // where hvdrun is to be run, for messages
  FoundAllocation (*find)(const Surroundings&);
};

// The order decides where two are found: what runs inside another stands before it.
constexpr std::array<EngineKind, 12> kEngines = {{
    {"flux", "FLUX_URI", "flux batch or flux alloc", find_flux},
    {"slurm", "SLURM_JOB_ID", "salloc or sbatch", find_slurm},
    {"pbs", "PBS_JOBID", "a job of qsub", find_pbs},
    {"lsf", "LSB_JOBID", "a job of bsub", find_lsf},
    {"sge", "SGE_TASK_ID", "a job of qsub with -pe", find_sge},
    {"sagemaker", "SM_HOSTS", "a training job", find_sagemaker},
    {"skypilot", "SKYPILOT_NODE_IPS", "a task of several nodes", find_skypilot},
    {"dstack", "DSTACK_NODES_IPS", "a task of several nodes", find_dstack},
    {"lws", "LWS_LEADER_ADDRESS", "a leader's pod", find_leader_worker_set},
    {"volcano", "VC_TASK_INDEX", "a pod of a job with the plug-ins svc and env", find_volcano},
    {"vertex", "CLUSTER_SPEC", "a custom job", find_vertex},
    {"azure", "AZ_BATCH_HOST_LIST", "a task of several nodes", find_azure},
}};

}  // namespace

std::vector<std::string> engine_words() {
  std::vector<std::string> words;
  for (const EngineKind& kind : kEngines) {
    words.emplace_back(kind.word);
  }
  return words;
}

Result<Surroundings> own_surroundings(std::vector<std::string> environment, int size) {
  Surroundings here;
  here.environment = std::move(environment);
  here.size = size;
  here.own_names = {own_host_name()};
  HVD_TRY_ASSIGN(const std::vector<std::string> addresses, interface_ips());
  here.own_names.insert(here.own_names.end(), addresses.begin(), addresses.end());
  here.is_task = parent_name() == "slurmstepd";
  return here;
}

FoundAllocation find_allocation(const Surroundings& here, std::string_view word) {
  for (const EngineKind& kind : kEngines) {
    if (!word.empty() && word != kind.word) {
      continue;
    }
    HVD_TRY_ASSIGN(std::optional<Allocation> found, kind.find(here));
    if (found) {
      return found;
    }
    if (!word.empty()) {
      const bool is_set = !value_in(here.environment, kind.variable).empty();
      return Error(Code::kInvalid, std::string(word) + " was asked for, but " + kind.variable +
                                       (is_set ? " speaks of no job of several hosts" : " is not set") +
                                       "; run hvdrun within " + kind.place + ", or do not ask for it");
    }
  }
  return std::optional<Allocation>();
}

std::string described(const Allocation& allocation, int size) {
  int slots = 0;
  for (const HostSpec& host : allocation.hosts) {
    slots += host.slots;
  }
  const std::string& first = allocation.hosts.front().name;
  const std::string& last = allocation.hosts.back().name;
  return allocation.engine + (allocation.job.empty() ? "" : " job " + allocation.job) + ": " +
         counted(allocation.hosts.size(), "node") + " (" + (first == last ? first : first + " to " + last) + "), " +
         counted(static_cast<std::size_t>(size > 0 ? std::min(size, slots) : slots), "rank") + " (" +
         allocation.slots_from + ")";
}

}  // namespace hvd::launch
