// Which GPUs the ranks of a node see. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"

namespace hvd::launch {

// Of the GPUs that a node has, the ones that the job uses there: those that the host names (a:2@0,3), else the first,
// one for each rank. An error names a GPU that is not there.
Result<std::vector<std::string>> gpus_of_job(const NodePlan& node, const std::vector<std::string>& on_node);

// What a rank is told, by the variable that the node's GPUs have (launcher/agent/node_gpus.h). `gpus` is gpus_of_job;
// empty: nothing.
EnvList gpu_env(GpuMode mode, const std::string& variable, const std::vector<std::string>& gpus, int local_rank);

// Who shares which GPU, where there are more ranks than GPUs; else empty.
std::string gpu_warning(GpuMode mode, const NodePlan& node, const std::vector<std::string>& gpus);

}  // namespace hvd::launch
