#include "runtime/core/rank_map.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hvd {

RankMap map_of(std::span<const int> node_of, int rank) {
  RankMap map;
  map.rank = rank;
  map.size = static_cast<int>(node_of.size());
  const int own = node_of[static_cast<std::size_t>(rank)];
  map.node_index = own;
  map.node_count = *std::max_element(node_of.begin(), node_of.end()) + 1;
  std::vector<int> on_node(static_cast<std::size_t>(map.node_count), 0);
  for (std::size_t other = 0; other < node_of.size(); ++other) {
    int& seen = on_node[static_cast<std::size_t>(node_of[other])];
    if (static_cast<int>(other) == rank) {
      map.local_rank = seen;
    }
    ++seen;
  }
  map.local_size = on_node[static_cast<std::size_t>(own)];
  const auto has_this_local_rank = [&](int count) { return count > map.local_rank; };
  map.cross_size = static_cast<int>(std::count_if(on_node.begin(), on_node.end(), has_this_local_rank));
  map.cross_rank = static_cast<int>(std::count_if(on_node.begin(), on_node.begin() + own, has_this_local_rank));
  return map;
}

std::optional<RankMap> map_among(const RankMap& job, std::span<const int> ranks) {
  HVD_CHECK(job.node_of_rank.size() == static_cast<std::size_t>(job.size));
  const auto self = std::lower_bound(ranks.begin(), ranks.end(), job.rank);
  if (self == ranks.end() || *self != job.rank) {
    return std::nullopt;
  }
  std::vector<int> node_of;
  int previous_node = -1;
  for (const int rank : ranks) {
    const int node = job.node_of_rank[static_cast<std::size_t>(rank)];
    node_of.push_back(node_of.empty() ? 0 : node_of.back() + (node == previous_node ? 0 : 1));
    previous_node = node;
  }
  RankMap map = map_of(node_of, static_cast<int>(self - ranks.begin()));
  map.node_of_rank = std::move(node_of);
  return map;
}

}  // namespace hvd
