// These are the NVIDIA GPUs of this node that ranks may use, by the names that CUDA_VISIBLE_DEVICES takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd::launch {

// Returns them in the order of their numbers, which is that of nvidia-smi. They come from the driver's files, which
// costs nothing. Where the files do not tell (MIG, WSL), nvidia-smi is asked until the deadline, if there is one. GPUs
// that CUDA_VISIBLE_DEVICES in `environment` leaves out are left out. The list is empty when no GPU can be found.
//
// `root` stands before /proc and /dev: it is "" except in tests.
std::vector<std::string> own_gpus(const std::vector<std::string>& environment, Deadline deadline,
                                  const std::string& root = "");

// Returns the memory (NUMA) node near each of these GPUs, named as by own_gpus(); -1 where the files do not tell.
std::vector<std::int32_t> numa_nodes_of_gpus(const std::vector<std::string>& gpus, const std::string& root = "");

// Returns the UUIDs in the output of `nvidia-smi -L`. MIG instances stand for their GPU. Pure.
std::vector<std::string> gpus_in_list(std::string_view nvidia_smi_output);

// Returns what a value of CUDA_VISIBLE_DEVICES leaves of `gpus`, in its order and in its words: only CUDA can say which
// number is which GPU where models differ. The words are numbers, UUIDs, or unambiguous beginnings of UUIDs. The first
// that names none ends the list, as in CUDA. Pure.
std::vector<std::string> visible_gpus(const std::vector<std::string>& gpus, std::string_view value);

}  // namespace hvd::launch
