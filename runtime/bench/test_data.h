// TestData: what ranks bring to a collective that is checked, and what must come out, known to every rank without
// asking another.
//
// Values repeat after a prime number of elements, so that a block that lands in another's place shows, whatever the
// algorithm's chunks are; every seed gives others. They are small whole numbers of which each reduction is exact in
// every type (an average is to within a rounding). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/dtype.h"

namespace hvd::bench {

class TestData {
 public:
  TestData(int ranks, Dtype dtype, ReduceOp op, std::uint64_t seed);

  // `count` elements to `out`: what `rank` brings, from its element `first` on.
  void fill(void* out, std::int64_t count, int rank, std::int64_t first = 0) const;
  // How many of `count` elements are not what `rank` brings, from its element `first` on.
  [[nodiscard]] std::int64_t count_wrong(const void* got, std::int64_t count, int rank, std::int64_t first = 0) const;
  // How many are not the reduction of what all bring.
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
