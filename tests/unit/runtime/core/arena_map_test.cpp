#include "runtime/core/arena_map.h"

#include <doctest/doctest.h>

namespace hvd::arena_map_test {

TEST_CASE("parts are first fit, whole units, and their room is used again") {
  ArenaMap map(100, 10);
  CHECK(map.allocate(1) == 0);
  CHECK(map.allocate(20) == 10);
  CHECK(map.allocate(11) == 30);
  map.release(10);
  CHECK(map.allocate(21) == 50);
  CHECK(map.allocate(10) == 10);
  CHECK(map.allocate(10) == 20);
  CHECK(map.allocate(21) == std::nullopt);
  CHECK(map.allocate(20) == 80);
  CHECK(map.allocate(1) == std::nullopt);
  for (const std::uint64_t begin : {0U, 10U, 20U, 30U, 50U, 80U}) {
    CHECK_FALSE(map.is_empty());
    map.release(begin);
  }
  CHECK(map.is_empty());
  CHECK(map.allocate(100) == 0);
}

TEST_CASE("what is larger than all is refused, whatever the numbers") {
  ArenaMap map(100, 10);
  CHECK(map.allocate(101) == std::nullopt);
  CHECK(map.allocate(UINT64_MAX) == std::nullopt);
}

}  // namespace hvd::arena_map_test
