// These are the GPUs of this node that ranks may use, of any maker, and the variable that hands them out.
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

// Returns NVIDIA's GPUs (own_gpus.h), else AMD's, else Intel's, without those that the node's own variable leaves out.
//
// AMD's come from the kernel's driver (/sys/class/kfd), if their device exists: a container may lack it. They have
// numbers for ROCR_VISIBLE_DEVICES. Where the node sets HIP_VISIBLE_DEVICES they have that variable's, which count what
// ROCR_VISIBLE_DEVICES leaves (ROCm's documentation, "GPU isolation techniques"). Intel's are those that the node's
// ZE_AFFINITY_MASK names: no file tells how its driver counts them (cards or tiles, and in which order).
//
// `root` stands before /proc, /sys and /dev: it is "" except in tests.
NodeGpus node_gpus(const std::vector<std::string>& environment, Deadline deadline, const std::string& root = "");

}  // namespace hvd::launch
