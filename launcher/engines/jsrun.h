// jsrun as an engine: IBM's command that starts processes on the compute nodes of a job of LSF. Pure.
//
// hvdrun runs on the job's launch host. The agents are one resource set for each compute node, with all of its
// processors and GPUs. The key of the call travels in the environment, since jsrun gives its standard input to the
// first process alone.
#pragma once

#include <string_view>

#include "launcher/engines/step.h"

namespace hvd::launch {

StepKind jsrun_step();

// One agent on each of as many nodes as `placement` has.
EngineCommand jsrun_command(const Placement& placement, const StepOptions& options, const CallPlace& place,
                            const CallKey& key);

EngineFailure jsrun_failure(std::string_view output);

}  // namespace hvd::launch
