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
  // The first node on the same host. A host that gets more slots while an elastic job runs has several nodes: the local
  // ranks of a later one follow those that are there already.
  int machine = index;

  // How many local ranks there are up to this node's last one.
  [[nodiscard]] int local_size() const { return ranks.back().local_rank + 1; }
};

struct Placement {
  int size = 0;
  std::vector<NodePlan> nodes;  // only hosts that got ranks

  [[nodiscard]] const NodePlan& node_of(int rank) const;
  // Adds a node behind the others, whose `count` ranks are numbered on. `first_local`: the local rank of the first.
  // References to nodes are invalid after it.
  void add(const HostSpec& host, int first_local, int count);
};

// Returns "rank 3" or "ranks 4-7".
std::string ranks_text(const NodePlan& node);

// Returns the same ranks, each as a node of its own, for launchers under which every rank has its own agent.
Placement one_node_per_rank(const Placement& placement);

// Places `size` ranks; 0 means as many ranks as there are slots.
Result<Placement> place(const HostList& hosts, int size);

}  // namespace hvd::launch
