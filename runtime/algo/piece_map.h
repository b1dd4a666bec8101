// PieceMap gives random access to pieces as if they were one array. It owns neither the pieces nor their list.
// Thread: any, one at a time.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algo/schedule.h"
#include "runtime/core/piece.h"

namespace hvd {

class PieceMap {
 public:
  // Replaces the pieces; the map's memory is reused.
  void set(std::span<const Piece> pieces) {
    pieces_ = pieces;
    ends_.clear();
    for (const Piece& piece : pieces) {
      ends_.push_back(size_bytes() + piece.size_bytes);
    }
  }
  [[nodiscard]] std::size_t size_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls visit(input, output, bytes) for each contiguous part of this range of bytes, in order, until it returns
  // false.
  template <typename Visit>
  void visit(Range range, const Visit& visit) const {
    // Find the first piece that ends after the beginning of the range, which skips pieces without bytes.
    auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), range.begin) - ends_.begin());
    for (std::size_t begin = range.begin; begin < range.end; ++at) {
      const std::size_t end = std::min(ends_[at], range.end);
      const std::size_t into = begin - (ends_[at] - pieces_[at].size_bytes);
      if (end > begin && !visit(static_cast<const std::uint8_t*>(pieces_[at].input) + into,
                                static_cast<std::uint8_t*>(pieces_[at].output) + into, end - begin)) {
        return;
      }
      begin = end;
    }
  }

 private:
  std::span<const Piece> pieces_;
  std::vector<std::size_t> ends_;  // the end of each piece, counted in bytes of all
};

}  // namespace hvd
