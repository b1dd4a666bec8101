// AlltoallLayout computes the positions of the pieces of an alltoall. In a sender's input they are in the order of
// their receivers; in a receiver's output, in the order of their senders. Value type; pure. It refers to the caller's
// table of sizes and does not own it.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/algo/schedule.h"

namespace hvd {

class AlltoallLayout {
 public:
  // sizes[from * size + to]: bytes that rank `from` sends to rank `to`.
  AlltoallLayout(std::span<const std::size_t> sizes, int size) : sizes_(sizes), size_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] std::size_t bytes(std::size_t from, std::size_t to) const { return sizes_[from * size_ + to]; }
  // The range in the input of `from` that is for the ranks `to`, which are consecutive.
  [[nodiscard]] Range sent(std::size_t from, Range to) const {
    return walk(to, [&](std::size_t rank) { return bytes(from, rank); });
  }
  // The range in the output of `to` that comes from the ranks `from`.
  [[nodiscard]] Range received(Range from, std::size_t to) const {
    return walk(from, [&](std::size_t rank) { return bytes(rank, to); });
  }
  // The bytes that the ranks `from` send to the ranks `to`, together.
  [[nodiscard]] std::size_t total(Range from, Range to) const {
    std::size_t sum = 0;
    for (std::size_t rank = from.begin; rank < from.end; ++rank) {
      sum += sent(rank, to).size();
    }
    return sum;
  }

 private:
  template <typename BytesOf>
  static Range walk(Range ranks, const BytesOf& bytes_of) {
    Range range;
    for (std::size_t rank = 0; rank < ranks.end; ++rank) {
      const std::size_t bytes = bytes_of(rank);
      range.begin += rank < ranks.begin ? bytes : 0;
      range.end += bytes;
    }
    return range;
  }

  std::span<const std::size_t> sizes_;
  std::size_t size_;
};

}  // namespace hvd
