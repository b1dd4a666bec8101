// The processors of this node that its ranks may use, and how they belong together.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/cpu_list.h"

namespace hvd::launch {

// Those that this process may run on: sched_getaffinity(2), so what a container or taskset(1) allows. Never empty.
CpuList allowed_cpus();

// The physical cores behind `allowed`, by memory (NUMA) node and first processor; of processors that /sys tells nothing
// about each is a core of node 0. `root` stands before /sys: "" but in tests.
//
// From the files and not by hwloc: the agent is one static executable, and hwloc's needs of Debian come as shared
// libraries only.
std::vector<CpuCore> own_cores(const CpuList& allowed, const std::string& root = "");

}  // namespace hvd::launch
