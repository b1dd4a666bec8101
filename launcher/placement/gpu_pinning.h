// These functions choose the GPUs that the ranks of a node see. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"

namespace hvd::launch {

// JobGpus are the GPUs that the job uses on a node.
struct JobGpus {
  std::string variable;            // which selects them (launcher/survey/node_gpus.h)
  std::vector<std::string> names;  // as the variable takes them
  bool is_whole = false;           // they are all that the node shows its programs, which need no variable for it
};

// Returns those of a node's GPUs that the job uses: the ones that the host list names (a:2@0,3), else all. An error
// names a GPU that is not there.
Result<std::vector<std::string>> gpus_of_job(const NodePlan& node, const std::vector<std::string>& on_node);

// Returns what a rank gets in the variable that selects the node's GPUs, and what JAX reads; nothing where there are no
// GPUs. A rank that is alone on its node has all of the job's GPUs there. Ranks that share a GPU also get a default
// variable (rank_env.h) by which NCCL lets them.
EnvList gpu_env(GpuMode mode, const JobGpus& gpus, int local_rank, int local_size);

// Says which ranks share which GPU, where there are more ranks than GPUs; else empty.
std::string gpu_warning(GpuMode mode, const NodePlan& node, const std::vector<std::string>& gpus);

}  // namespace hvd::launch
