#include "launcher/placement/gpu_pinning.h"

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Returns what JAX takes for the devices of a process: "0,1,2". Ranks that are more than the GPUs share them.
std::string jax_devices(std::size_t gpus, int local_rank, int local_size) {
  std::string text = std::to_string(static_cast<std::size_t>(local_rank) % gpus);
  for (std::size_t gpu = 1; local_size == 1 && gpu < gpus; ++gpu) {
    text += "," + std::to_string(gpu);
  }
  return text;
}

}  // namespace

Result<std::vector<std::string>> gpus_of_job(const NodePlan& node, const std::vector<std::string>& on_node) {
  if (node.host.gpus.empty()) {
    return on_node;
  }
  std::vector<std::string> gpus;
  for (const int number : node.host.gpus) {
    if (static_cast<std::size_t>(number) >= on_node.size()) {
      const std::string has = on_node.empty()       ? "no GPU that it shows us"
                              : on_node.size() == 1 ? "GPU 0 only"
                                                    : "GPUs 0-" + std::to_string(on_node.size() - 1);
      return Error(Code::kInvalid, node.host.name + " has " + has + ", and the host list names GPU " +
                                       std::to_string(number) +
                                       "; see nvidia-smi -L (rocm-smi) and CUDA_VISIBLE_DEVICES (ROCR_, HIP_) there");
    }
    gpus.push_back(on_node[static_cast<std::size_t>(number)]);
  }
  return gpus;
}

EnvList gpu_env(GpuMode mode, const JobGpus& gpus, int local_rank, int local_size) {
  const std::size_t count = gpus.names.size();
  if (count == 0 || mode == GpuMode::kNone) {
    return {};
  }
  if (mode == GpuMode::kLocal) {
    EnvList env;
    if (!gpus.is_whole) {
      env.emplace_back(gpus.variable, joined(gpus.names, ","));
    }
    env.emplace_back("JAX_LOCAL_DEVICE_IDS", jax_devices(count, local_rank, local_size));
    return env;
  }
  EnvList env = {{gpus.variable, gpus.names[static_cast<std::size_t>(local_rank) % count]},
                 {"JAX_LOCAL_DEVICE_IDS", "0"}};
  if (static_cast<std::size_t>(local_size) > count) {
    env.emplace_back("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  }
  return env;
}

std::string gpu_warning(GpuMode mode, const NodePlan& node, const std::vector<std::string>& gpus) {
  if (mode == GpuMode::kNone || gpus.empty() || node.ranks.size() <= gpus.size()) {
    return "";
  }
  std::string text = std::to_string(node.ranks.size()) + " ranks on " + node.host.name + " for " +
                     std::to_string(gpus.size()) + (gpus.size() == 1 ? " GPU" : " GPUs");
  if (mode == GpuMode::kLocal) {
    return text + ": a rank that takes the GPU of its local rank finds none from local rank " +
           std::to_string(gpus.size()) + " on; --gpus one lets them share";
  }
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    std::string ranks;
    for (std::size_t i = gpu; i < node.ranks.size(); i += gpus.size()) {
      ranks += (ranks.empty() ? "" : ",") + std::to_string(node.ranks[i].rank);
    }
    text += (gpu == 0 ? ": " : "; ") + std::string("ranks ") + ranks + " share " + gpus[gpu];
  }
  return text;
}

}  // namespace hvd::launch
