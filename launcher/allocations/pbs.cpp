// OpenPBS, PBS Professional and Torque.
//
// Their nodes are reached by SSH. pbs_tmrsh and pbsdsh start a program on a node, but without our standard input, and
// what it prints goes to the job's own files instead of to them: no stream of bytes comes of it.
#include "launcher/allocations/node_words.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {

FoundAllocation find_pbs(const Surroundings& here) {
  Allocation found;
  found.engine = "PBS";
  found.job = value_in(here.environment, "PBS_JOBID");
  if (found.job.empty()) {
    return std::optional<Allocation>();
  }
  found.job = found.job.substr(0, found.job.find('.'));  // "12.server"
  found.slots_from = "PBS_NODEFILE";
  const std::string file = value_in(here.environment, "PBS_NODEFILE");
  if (file.empty()) {
    return half_known(found, "PBS_NODEFILE, which names its nodes, is not set");
  }
  // One line for each process that the job asked for (mpiprocs, ppn), so repeated names are slots.
  HVD_TRY_ASSIGN(const std::vector<std::string> lines, lines_of(found, "PBS_NODEFILE", file));
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, "PBS_NODEFILE", lines));
  HVD_TRY(check_count(found, here, "PBS_NP", slots_of(found.hosts), "PBS_NODEFILE"));  // Torque sets it
  return complete(std::move(found), here, "PBS_NODEFILE");
}

}  // namespace hvd::launch
