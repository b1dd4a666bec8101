// These functions choose the processors that the ranks of a node run on. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "runtime/base/cpu_list.h"

namespace hvd::launch {

struct RankCpus {
  CpuList cpus;     // empty: not bound
  int threads = 1;  // this rank's share of processors, when those that it shares are divided evenly; 0: it has all
};

// Returns one entry for each local rank. `limit` is how many processors the control groups leave to all of them
// together, 0: no limit. `near` is the NUMA node of each local rank's GPU, -1 where none is known; it
// may be shorter.
//
// The home of a rank is the NUMA node of its GPU, else its part of all NUMA nodes, which are divided among the ranks in
// order: two ranks on four NUMA nodes have two each; of four ranks on two, two share each. kNuma: a rank runs on all of
// its home. kCore: the ranks of a home divide its cores among themselves; with more ranks than cores some share one.
std::vector<RankCpus> bind_ranks(BindMode mode, const std::vector<CpuCore>& cores, int ranks,
                                 const std::vector<std::int32_t>& near, double limit = 0);

// Says which ranks share cores under kCore, where there are more ranks than cores; else empty.
std::string bind_warning(BindMode mode, const NodePlan& node, const std::vector<CpuCore>& cores);

}  // namespace hvd::launch
