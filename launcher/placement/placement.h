// Placement says which rank runs on which node. Pure: no I/O, no clock, no environment.
//
// The rule is Horovod's: hosts in their order, all slots of a host before the next one; the first `size` slots get
// ranks.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct RankPlan {
  int rank = 0;
  int local_rank = 0;  // index among its node's ranks
  int cross_rank = 0;  // index of its node among the nodes that have this local_rank
  int cross_size = 1;  // count of those nodes

  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

struct NodePlan {
  int index = 0;
  HostSpec host;
  std::vector<RankPlan> ranks;  // in rank order

  [[nodiscard]] int local_size() const { return static_cast<int>(ranks.size()); }
};

struct Placement {
  int size = 0;
  std::vector<NodePlan> nodes;  // only hosts that got ranks

  [[nodiscard]] const NodePlan& node_of(int rank) const;
};

// Returns the same ranks, each as a node of its own, for launchers under which every rank has its own agent.
Placement one_node_per_rank(const Placement& placement);

// Places `size` ranks; 0 means as many ranks as there are slots.
Result<Placement> place(const HostList& hosts, int size);

}  // namespace hvd::launch
