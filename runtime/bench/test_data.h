// TestData is the input of a checked collective on each rank, and its expected result. Every rank can compute both
// without communication.
//
// The values repeat after a prime number of elements. A block that arrives at another block's place is therefore
// detected, whatever the chunks of the algorithm are. Every seed gives other values. They are small whole numbers, for
// which each reduction is exact in every type (an average is exact up to one rounding). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/dtype.h"

namespace hvd::bench {

class TestData {
 public:
  TestData(int ranks, Dtype dtype, ReduceOp op, std::uint64_t seed);

  // Writes `count` elements of `rank`'s input to `out`, beginning with its element `first`.
  void fill(void* out, std::int64_t count, int rank, std::int64_t first = 0) const;
  // Counts how many of `count` elements differ from `rank`'s input, beginning with its element `first`.
  [[nodiscard]] std::int64_t count_wrong(const void* got, std::int64_t count, int rank, std::int64_t first = 0) const;
  // Counts how many elements differ from the reduction of all ranks' inputs.
  [[nodiscard]] std::int64_t count_wrong_reduction(const void* got, std::int64_t count, std::int64_t first = 0) const;

 private:
  using Tile = std::vector<std::byte>;  // the values of one period

  [[nodiscard]] int value(int rank, int phase) const;
  [[nodiscard]] double reduction(int phase) const;
  [[nodiscard]] Tile tile_of(int rank) const;
  [[nodiscard]] std::int64_t differences(const Tile& tile, const void* got, std::int64_t count, std::int64_t first,
                                         bool is_rounded) const;

  const int ranks_;
  const Dtype dtype_;
  const ReduceOp op_;
  const std::uint64_t seed_;
};

}  // namespace hvd::bench
