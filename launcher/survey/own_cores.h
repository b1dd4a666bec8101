// These are the processors of this node that its ranks may use, and how they belong together.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/cpu_list.h"

namespace hvd::launch {

// Returns those that this process may run on: what a container or taskset(1) allows (sched_getaffinity(2)). Never
// empty.
CpuList allowed_cpus();

// Returns the physical cores of `allowed`, by memory (NUMA) node and first processor. A processor that /sys does not
// describe is a core of node 0. `root` stands before /sys: it is "" except in tests.
//
// It reads files and does not use hwloc: the agent is one static executable, and Debian has the libraries that hwloc
// needs only as shared ones.
std::vector<CpuCore> own_cores(const CpuList& allowed, const std::string& root = "");

}  // namespace hvd::launch
