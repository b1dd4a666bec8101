#include "launcher/placement/gpu_pinning.h"

#include <algorithm>

namespace hvd::launch {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ",") + word;
  }
  return text;
}

}  // namespace

Result<std::vector<std::string>> gpus_of_job(const NodePlan& node, const std::vector<std::string>& on_node) {
  if (node.host.gpus.empty()) {
    const std::size_t count = std::min(on_node.size(), static_cast<std::size_t>(node.local_size()));
    return std::vector<std::string>(on_node.begin(), on_node.begin() + static_cast<std::ptrdiff_t>(count));
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

EnvList gpu_env(GpuMode mode, const std::string& variable, const std::vector<std::string>& gpus, int local_rank,
                int local_size) {
  if (gpus.empty() || mode == GpuMode::kNone) {
    return {};
  }
  if (mode == GpuMode::kLocal) {
    // Without this variable, JAX takes LOCAL_RANK for the device it may use.
    return {{variable, joined(gpus)}, {"JAX_LOCAL_DEVICE_IDS", std::to_string(local_rank)}};
  }
  EnvList env = {{variable, gpus[static_cast<std::size_t>(local_rank) % gpus.size()]}, {"JAX_LOCAL_DEVICE_IDS", "0"}};
  if (static_cast<std::size_t>(local_size) > gpus.size()) {
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
