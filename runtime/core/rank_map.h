// RankMap: who this rank is and on which node every rank lives. Value type.
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
  // Node of each rank, [size]; the ranks of a node are consecutive. Filled when the ranks have met (Mesh::join).
  std::vector<int> node_of_rank;

  // The first rank of a node speaks for it to other nodes.
  [[nodiscard]] bool is_leader() const { return local_rank == 0; }
  [[nodiscard]] bool is_coordinator() const { return rank == 0; }
};

// Where this rank is among `ranks` (ascending, of the job whose map this is): a map in which they are numbered from 0.
// Nothing when it is not one of them.
std::optional<RankMap> map_among(const RankMap& job, std::span<const int> ranks);

}  // namespace hvd
