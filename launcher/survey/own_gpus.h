// The NVIDIA GPUs of this node that ranks may use, each under the name that CUDA_VISIBLE_DEVICES takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd::launch {

// In the order of their numbers, which is that of nvidia-smi. Asked of the driver's files, which costs nothing, or
// where these do not tell (MIG, WSL) of nvidia-smi, if there is one, until the deadline. What the variable
// CUDA_VISIBLE_DEVICES in `environment` leaves out is not there; without a GPU that can be found out, the list is
// empty.
//
// `root` stands before /proc and /dev: "" but in tests.
std::vector<std::string> own_gpus(const std::vector<std::string>& environment, Deadline deadline,
                                  const std::string& root = "");

// The memory (NUMA) node that each of these GPUs, as own_gpus() names them, is near; -1 where the files do not tell.
std::vector<std::int32_t> numa_nodes_of_gpus(const std::vector<std::string>& gpus, const std::string& root = "");

// UUIDs from `nvidia-smi -L`; of a GPU with MIG instances these instead of itself. Pure.
std::vector<std::string> gpus_in_list(std::string_view nvidia_smi_output);

// What a value of CUDA_VISIBLE_DEVICES leaves of `gpus`, in its order and in its words (which number is which GPU is
// CUDA's to say, where models differ): numbers, UUIDs, or their unambiguous beginnings. The first that names none ends
// the list, as in CUDA. Pure.
std::vector<std::string> visible_gpus(const std::vector<std::string>& gpus, std::string_view value);

}  // namespace hvd::launch
