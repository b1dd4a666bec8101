// RankMap says which rank this is, and on which node every rank is. Value type.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace hvd {

struct RankMap {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  int node_index = 0;
  int node_count = 1;
  // The node of each rank, [size]; the ranks of a node are consecutive. Filled in when the ranks have connected
  // (Mesh::join).
  std::vector<int> node_of_rank;

  // The leader of a node, its first rank, exchanges data with other nodes for all of its ranks.
  [[nodiscard]] bool is_leader() const { return local_rank == 0; }
  [[nodiscard]] bool is_coordinator() const { return rank == 0; }
};

// Makes the map of a rank from the nodes of all ranks, which are numbered in the order in which they appear. It leaves
// node_of_rank empty.
RankMap map_of(std::span<const int> node_of, int rank);

// Returns this rank's place among `ranks` (ascending, of the job): a map that numbers them from 0. Returns nothing if
// this rank is not one of them.
std::optional<RankMap> map_among(const RankMap& job, std::span<const int> ranks);

}  // namespace hvd
