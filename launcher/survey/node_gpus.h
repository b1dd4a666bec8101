// The GPUs of this node that ranks may use, of whatever maker, and the variable that hands them out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd::launch {

struct NodeGpus {
  std::string variable;            // "CUDA_VISIBLE_DEVICES"; empty: there is no GPU
  std::vector<std::string> names;  // as the variable takes them
  std::vector<std::int32_t> near;  // the memory (NUMA) node of each, -1: unknown
};

// NVIDIA's (own_gpus.h), else AMD's, else Intel's. What the node's own variable leaves out is not there.
//
// AMD's are those of the kernel's driver (/sys/class/kfd) whose device is there, which a container may lack, by their
// numbers, for ROCR_VISIBLE_DEVICES; where the node sets HIP_VISIBLE_DEVICES, for that, which counts among what
// ROCR_VISIBLE_DEVICES leaves (ROCm's documentation, "GPU isolation techniques"). Intel's are what the node's
// ZE_AFFINITY_MASK names: how its driver counts them (cards or tiles, and in which order) no file tells.
//
// `root` stands before /proc, /sys and /dev: "" but in tests.
NodeGpus node_gpus(const std::vector<std::string>& environment, Deadline deadline, const std::string& root = "");

}  // namespace hvd::launch
