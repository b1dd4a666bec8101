// These functions choose the GPUs that the ranks of a node see. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"

namespace hvd::launch {

// Returns those of a node's GPUs that the job uses: the ones that the host list names (a:2@0,3), else the first ones,
// one for each rank. An error names a GPU that is not there.
Result<std::vector<std::string>> gpus_of_job(const NodePlan& node, const std::vector<std::string>& on_node);

// Returns what a rank gets in the variable that selects the node's GPUs (launcher/survey/node_gpus.h). `gpus` comes
// from gpus_of_job(); empty: nothing is set. Ranks that share a GPU also get a default variable (rank_env.h) by which
// NCCL lets them.
EnvList gpu_env(GpuMode mode, const std::string& variable, const std::vector<std::string>& gpus, int local_rank,
                int local_size);

// Says which ranks share which GPU, where there are more ranks than GPUs; else empty.
std::string gpu_warning(GpuMode mode, const NodePlan& node, const std::vector<std::string>& gpus);

}  // namespace hvd::launch
