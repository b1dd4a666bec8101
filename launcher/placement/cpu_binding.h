// Which processors the ranks of a node run on. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "runtime/base/cpu_list.h"

namespace hvd::launch {

struct RankCpus {
  CpuList cpus;     // empty: not bound
  int threads = 1;  // processors for this rank alone, when those that it shares are divided evenly
};

// One for each local rank. `near`: the NUMA node of each local rank's GPU, -1 where none is known; it may be shorter.
//
// Home of a rank is the node of its GPU, else its part of all nodes, which are shared out to the ranks in order: two
// ranks on four nodes have two each, four ranks on two nodes are two on each. kNuma: a rank runs on all of its home.
// kCore: the ranks of a home divide its cores among themselves; with more ranks than cores some share one.
std::vector<RankCpus> bind_ranks(BindMode mode, const std::vector<CpuCore>& cores, int ranks,
                                 const std::vector<std::int32_t>& near);

// Who shares cores under kCore, where there are more ranks than cores; else empty.
std::string bind_warning(BindMode mode, const NodePlan& node, const std::vector<CpuCore>& cores);

}  // namespace hvd::launch
