// Slurm as an engine: what its variables say of the nodes that it gave, and the srun command that starts one agent on
// each of them. Pure.
//
// Within salloc and sbatch the job's variables name the nodes. The agents are one step of srun, with the step's own
// standard input to bring them the key of the call, so that no command line and no environment has it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/job/host_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/wire/engine_call.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// What Slurm has given to the job in which hvdrun runs.
struct SlurmAllocation {
  std::string job;  // its number
  HostList hosts;   // with the slots that Slurm's words or `size` give them
  bool slots_are_gpus =
      false;               // nobody has said how many ranks a node gets: as many as it has GPUs, which agents count
  std::string slots_from;  // "SLURM_TASKS_PER_NODE", for the user
};

// Reads `environment`; nothing where it names no job. `size`: the ranks that the user asks for, 0: none said. A
// half-known allocation is an error that names the variable, since a job must not run on one node where four were asked
// for.
Result<std::optional<SlurmAllocation>> slurm_allocation(const std::vector<std::string>& environment, int size);

// Returns the count of each node from Slurm's way to write them, "2(x3),1".
Result<std::vector<int>> expand_task_counts(std::string_view text);

struct SrunOptions {
  std::string agent_path;                // the same on every node
  std::vector<std::string> environment;  // of hvdrun
  std::uint64_t open_files = 0;          // of hvdrun, as it was started
};

// One agent on each node of `placement`; they call at `place`. Variables that change what srun's options mean are left
// out of its environment.
EngineCommand srun_command(const Placement& placement, const SrunOptions& options, const CallPlace& place,
                           const CallKey& key);

EngineFailure srun_failure(std::string_view output);

}  // namespace hvd::launch
