#include "launcher/placement/placement.h"

#include <algorithm>
#include <limits>

#include "runtime/base/check.h"

namespace hvd::launch {

const NodePlan& Placement::node_of(int rank) const {
  const auto found = std::lower_bound(nodes.begin(), nodes.end(), rank,
                                      [](const NodePlan& node, int r) { return node.ranks.back().rank < r; });
  HVD_CHECK(found != nodes.end() && rank >= 0);
  return *found;
}

void Placement::add(const HostSpec& host, int first_local, int count) {
  NodePlan node{static_cast<int>(nodes.size()), host, {}};
  const auto same = std::find_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n.host.name == host.name; });
  node.machine = same == nodes.end() ? node.index : same->index;
  for (int local_rank = first_local; local_rank < first_local + count; ++local_rank) {
    node.ranks.push_back(RankPlan{size++, local_rank, 0, 1});
  }
  nodes.push_back(std::move(node));
}

std::string ranks_text(const NodePlan& node) {
  const std::string first = std::to_string(node.ranks.front().rank);
  const std::string last = std::to_string(node.ranks.back().rank);
  return first == last ? "rank " + first : "ranks " + first + "-" + last;
}

Placement one_node_per_rank(const Placement& placement) {
  Placement split;
  split.size = placement.size;
  for (const NodePlan& node : placement.nodes) {
    for (const RankPlan& rank : node.ranks) {
      split.nodes.push_back(NodePlan{rank.rank, node.host, {rank}});
    }
  }
  return split;
}

Result<Placement> place(const HostList& hosts, int size) {
  long long all = 0;
  for (const HostSpec& host : hosts) {
    all += host.slots;
  }
  if (all > std::numeric_limits<int>::max()) {
    return Error(Code::kInvalid, "the hosts have " + std::to_string(all) + " slots, more than there can be ranks");
  }
  const int slots = static_cast<int>(all);
  if (size == 0) {
    size = slots;
  }
  if (size < 1 || size > slots) {
    return Error(Code::kInvalid, std::to_string(size) + " ranks asked for (-np), but the hosts have " +
                                     std::to_string(slots) + (slots == 1 ? " slot" : " slots") +
                                     "; give more slots, as in -H " + (hosts.empty() ? "node1" : hosts.front().name) +
                                     ":" + std::to_string(std::max(size, 1)) + ", or fewer ranks");
  }
  Placement placement;
  placement.size = size;
  int rank = 0;
  for (const HostSpec& host : hosts) {
    NodePlan node{static_cast<int>(placement.nodes.size()), host, {}};
    for (int local_rank = 0; local_rank < host.slots && rank < size; ++local_rank) {
      node.ranks.push_back(RankPlan{rank++, local_rank, 0, 1});
    }
    if (!node.ranks.empty()) {
      placement.nodes.push_back(std::move(node));
    }
  }
  // Counts the nodes so far that have a given local_rank: this is the cross_rank of the next one.
  std::vector<int> count_by_local_rank;
  for (NodePlan& node : placement.nodes) {
    count_by_local_rank.resize(std::max(count_by_local_rank.size(), node.ranks.size()), 0);
    for (RankPlan& plan : node.ranks) {
      plan.cross_rank = count_by_local_rank[static_cast<std::size_t>(plan.local_rank)]++;
    }
  }
  for (NodePlan& node : placement.nodes) {
    for (RankPlan& plan : node.ranks) {
      plan.cross_size = count_by_local_rank[static_cast<std::size_t>(plan.local_rank)];
    }
  }
  return placement;
}

}  // namespace hvd::launch
