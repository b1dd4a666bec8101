#include "runtime/core/rank_map.h"

#include <doctest/doctest.h>

namespace hvd::rank_map_test {
namespace {

// Three nodes of 2, 1 and 3 ranks.
RankMap job_of_six(int rank) {
  RankMap map;
  map.rank = rank;
  map.size = 6;
  map.node_of_rank = {0, 0, 1, 2, 2, 2};
  return map;
}

}  // namespace

TEST_CASE("a rank's place among some ranks of its job") {
  const std::vector<int> ranks = {1, 3, 5};
  const auto map = map_among(job_of_six(5), ranks);
  REQUIRE(map);
  CHECK(map->rank == 2);
  CHECK(map->size == 3);
  CHECK(map->node_index == 1);
  CHECK(map->node_count == 2);
  CHECK(map->local_rank == 1);
  CHECK(map->local_size == 2);
  CHECK(map->cross_rank == 0);
  CHECK(map->cross_size == 1);
  CHECK(map->node_of_rank == std::vector<int>{0, 1, 1});
  const auto leader = map_among(job_of_six(3), ranks);
  REQUIRE(leader);
  CHECK(leader->is_leader());
  CHECK(leader->cross_rank == 1);
  CHECK(leader->cross_size == 2);
}

TEST_CASE("a rank that is not one of them has no place") {
  CHECK_FALSE(map_among(job_of_six(0), std::vector<int>{1, 3, 5}));
  CHECK_FALSE(map_among(job_of_six(5), std::vector<int>{0, 4}));
}

}  // namespace hvd::rank_map_test
