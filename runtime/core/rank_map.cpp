#include "runtime/core/rank_map.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd {

std::optional<RankMap> map_among(const RankMap& job, std::span<const int> ranks) {
  HVD_CHECK(job.node_of_rank.size() == static_cast<std::size_t>(job.size));
  const auto self = std::lower_bound(ranks.begin(), ranks.end(), job.rank);
  if (self == ranks.end() || *self != job.rank) {
    return std::nullopt;
  }
  RankMap map;
  map.rank = static_cast<int>(self - ranks.begin());
  map.size = static_cast<int>(ranks.size());
  map.node_count = 0;
  map.local_size = 0;
  int previous_node = -1;
  std::vector<int> on_node;  // number of ranks on each node
  for (const int rank : ranks) {
    const int node = job.node_of_rank[static_cast<std::size_t>(rank)];
    if (node != previous_node) {
      previous_node = node;
      ++map.node_count;
      on_node.push_back(0);
    }
    if (rank == job.rank) {
      map.node_index = map.node_count - 1;
      map.local_rank = on_node.back();
    }
    ++on_node.back();
    map.node_of_rank.push_back(map.node_count - 1);
  }
  map.local_size = on_node[static_cast<std::size_t>(map.node_index)];
  const auto has_this_local_rank = [&](int count) { return count > map.local_rank; };
  map.cross_size = static_cast<int>(std::count_if(on_node.begin(), on_node.end(), has_this_local_rank));
  map.cross_rank =
      static_cast<int>(std::count_if(on_node.begin(), on_node.begin() + map.node_index, has_this_local_rank));
  return map;
}

}  // namespace hvd
