// ShareBlocks: goes through some of the shares that a chunk is split into, block by block. A block lies in one share,
// and in one piece of the caller's memory, so that what is done with it needs two addresses and a size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/schedule.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

// Local rank `rank`'s share of a chunk. Shares end at cache lines, so that no two ranks write one.
constexpr Range share_of(std::size_t chunk_bytes, int ranks, int rank) {
  return split(chunk_bytes, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank), kCacheLineBytes);
}

class ShareBlocks {
 public:
  // The share of `self`, or those of all others; blocks of at most block_bytes. `chunk`: which bytes of all pieces; the
  // cursor is not yet behind its beginning, and is moved.
  enum class Of { kSelf, kOthers };
  ShareBlocks(PieceCursor& cursor, Range chunk, int ranks, int self, Of of, std::size_t block_bytes)
      : cursor_(&cursor), chunk_(chunk), ranks_(ranks), self_(self), of_(of), block_bytes_(block_bytes) {}

  // The next block; false when there is none, also when asked again.
  bool next() {
    begin_ += size_;
    place_ += size_;
    if (begin_ == end_ && !find()) {
      size_ = 0;
      return false;
    }
    size_ = std::min(block_bytes_, end_ - begin_);
    return true;
  }
  [[nodiscard]] std::size_t begin() const { return begin_; }  // in the chunk
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int rank() const { return rank_; }  // whose it is
  // The caller's.
  [[nodiscard]] const std::uint8_t* input() const { return static_cast<const std::uint8_t*>(piece_->input) + place_; }
  [[nodiscard]] std::uint8_t* output() const { return static_cast<std::uint8_t*>(piece_->output) + place_; }

 private:
  // As much as lies together.
  bool find() {
    while (begin_ == share_.end) {
      if (rank_ + 1 >= ranks_) {
        end_ = begin_;
        return false;
      }
      ++rank_;
      if ((rank_ == self_) == (of_ == Of::kSelf)) {
        share_ = share_of(chunk_.size(), ranks_, rank_);
        begin_ = share_.begin;
      }
    }
    cursor_->skip_to(chunk_.begin + begin_);
    piece_ = &cursor_->piece();
    place_ = cursor_->place();
    end_ = std::min(share_.end, begin_ + piece_->size_bytes - place_);
    return true;
  }

  PieceCursor* cursor_;
  Range chunk_;
  int ranks_;
  int self_;
  Of of_;
  std::size_t block_bytes_;
  int rank_ = -1;
  Range share_;
  const Piece* piece_ = nullptr;
  std::size_t place_ = 0;  // of the block in the piece
  std::size_t begin_ = 0;  // of the block
  std::size_t size_ = 0;   // of it
  std::size_t end_ = 0;    // of what lies together
};

}  // namespace hvd
