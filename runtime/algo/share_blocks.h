// ShareBlocks: goes through some of the shares that a chunk is split into, block by block. Value type.
#pragma once

#include <algorithm>
#include <cstddef>

#include "runtime/algo/schedule.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

// Local rank `rank`'s share of a chunk. Shares end at cache lines, so that no two ranks write one.
constexpr Range share_of(std::size_t chunk_bytes, int ranks, int rank) {
  return split(chunk_bytes, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank), kCacheLineBytes);
}

class ShareBlocks {
 public:
  // The share of `self`, or those of all others; blocks of at most block_bytes.
  enum class Of { kSelf, kOthers };
  ShareBlocks(std::size_t chunk_bytes, int ranks, int self, Of of, std::size_t block_bytes)
      : chunk_bytes_(chunk_bytes), ranks_(ranks), self_(self), of_(of), block_bytes_(block_bytes) {}

  // The next block, all of one share; false when there is none.
  bool next() {
    while (at_ == share_.end) {
      if (++rank_ >= ranks_) {
        return false;
      }
      if ((rank_ == self_) == (of_ == Of::kSelf)) {
        share_ = share_of(chunk_bytes_, ranks_, rank_);
        at_ = share_.begin;
      }
    }
    block_ = Range{at_, std::min(at_ + block_bytes_, share_.end)};
    at_ = block_.end;
    return true;
  }
  [[nodiscard]] const Range& block() const { return block_; }  // in the chunk
  [[nodiscard]] int rank() const { return rank_; }             // whose it is

 private:
  std::size_t chunk_bytes_;
  int ranks_;
  int self_;
  Of of_;
  std::size_t block_bytes_;
  int rank_ = -1;
  Range share_;
  std::size_t at_ = 0;
  Range block_;
};

}  // namespace hvd
