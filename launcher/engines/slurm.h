// Slurm as an engine: the srun command that starts one agent on each of a job's nodes. Pure.
//
// Within salloc and sbatch the job's variables name the nodes (allocations/slurm.cpp). The agents are one step of
// srun, with the step's own standard input to bring them the key of the call, so that no command line and no
// environment has it.
#pragma once

#include <string>
#include <string_view>

#include "launcher/engines/step.h"

namespace hvd::launch {

StepKind slurm_step();

// One agent on each node of `placement`; they call at `place`. Variables that change what srun's options mean are left
// out of its environment.
EngineCommand srun_command(const Placement& placement, const StepOptions& options, const CallPlace& place,
                           const CallKey& key);

EngineFailure srun_failure(std::string_view output);

// Returns what a line of srun's says of why Slurm ends the step.
EndReason slurm_end_reason(std::string_view line);

}  // namespace hvd::launch
