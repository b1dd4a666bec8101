// An allocation is what a batch system or a cloud has given to the job in which hvdrun runs: hosts with slots, and how
// they are reached. Value type. Each batch system is read in a file of its own here, and most clouds in clouds.cpp.
//
// An engine's words are variables, files that these name, and for Flux a command's answer. What is known by half is an
// error that names the variable: a job must not run on this machine alone where four were asked for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct Allocation {
  std::string engine;  // "PBS", for the user
  std::string job;     // its number or name; empty: the engine says none
  HostList hosts;
  // Nobody has said how many ranks a node gets: as many as it has GPUs, which its agent counts (Slurm, jsrun).
  bool slots_are_gpus = false;
  std::string slots_from;  // "PBS_NODEFILE", for the user
  int gpus = 0;            // of the whole job, where the engine's step may get fewer (Slurm only); 0: not known
  std::string node_gpus;   // what the step asks for on each node, as in "a100:8"; empty: it asks for none
  std::string rsh;         // the command that reaches the hosts, as --rsh has it; empty: SSH
};

// Surroundings are all that an engine's words are read from.
struct Surroundings {
  std::vector<std::string> environment;  // of hvdrun, as "NAME=value"
  std::vector<std::string> own_names;    // this machine's host name, then its addresses
  int size = 0;                          // the ranks that the user asks for; 0: none said
  bool is_task = false;                  // srun has started this process itself, and no shell or script has
  std::string cloud_file = "/opt/ml/input/config/resourceconfig.json";  // SageMaker's description of a job
};

// Returns the surroundings of this process.
Result<Surroundings> own_surroundings(std::vector<std::string> environment, int size);

using FoundAllocation = Result<std::optional<Allocation>>;  // nothing: this is no job of the engine's

FoundAllocation find_slurm(const Surroundings& here);
FoundAllocation find_pbs(const Surroundings& here);
FoundAllocation find_lsf(const Surroundings& here);
FoundAllocation find_sge(const Surroundings& here);
FoundAllocation find_flux(const Surroundings& here);
FoundAllocation find_sagemaker(const Surroundings& here);
FoundAllocation find_azure(const Surroundings& here);
FoundAllocation find_vertex(const Surroundings& here);
FoundAllocation find_skypilot(const Surroundings& here);
FoundAllocation find_dstack(const Surroundings& here);
FoundAllocation find_leader_worker_set(const Surroundings& here);
FoundAllocation find_volcano(const Surroundings& here);

// The words of --engine, without "none".
std::vector<std::string> engine_words();

// Looks for the engine of this word and insists on it, or for any where the word is empty. The innermost of two counts:
// Flux within Slurm.
FoundAllocation find_allocation(const Surroundings& here, std::string_view word);

// Reads the host file that the first of mpirun's variables names, as --hostfile is read. It is no engine's, and counts
// where no engine is found. An error names the variable.
FoundAllocation find_host_file(const Surroundings& here);

// "PBS job 12: 4 nodes (n1 to n4), 8 ranks (PBS_NODEFILE)".
std::string described(const Allocation& allocation, int size);

// Returns the count of each node from Slurm's way to write them, "2(x3),1".
Result<std::vector<int>> expand_task_counts(std::string_view text);

}  // namespace hvd::launch
