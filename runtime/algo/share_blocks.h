// ShareBlocks walks through shares of a chunk, block by block. A block is inside one share and one piece of the
// caller's memory, so that the code that handles it needs only two addresses and a size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/schedule.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

// Local rank `rank`'s share of a chunk. Shares end at cache lines, so that no two ranks write to the same one.
constexpr Range share_of(std::size_t chunk_bytes, int ranks, int rank) {
  return split(chunk_bytes, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank), kCacheLineBytes);
}

class ShareBlocks {
 public:
  // Walks the share of `self`, or those of all others, in blocks of at most block_bytes. `chunk` is a range of bytes of
  // all pieces; the cursor must not be past its beginning, and is moved.
  enum class Of { kSelf, kOthers };
  ShareBlocks(PieceCursor& cursor, Range chunk, int ranks, int self, Of of, std::size_t block_bytes)
      : cursor_(&cursor), chunk_(chunk), ranks_(ranks), self_(self), of_(of), block_bytes_(block_bytes) {}

  // Moves to the next block; returns false if there is none, also on later calls.
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
  [[nodiscard]] int rank() const { return rank_; }  // the rank whose share it is in
  // Addresses in the caller's memory.
  [[nodiscard]] const std::uint8_t* input() const { return static_cast<const std::uint8_t*>(piece_->input) + place_; }
  [[nodiscard]] std::uint8_t* output() const { return static_cast<std::uint8_t*>(piece_->output) + place_; }

 private:
  // Finds the next contiguous part.
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
  std::size_t begin_ = 0;  // of the block in the chunk
  std::size_t size_ = 0;   // of the block
  std::size_t end_ = 0;    // of the contiguous part
};

}  // namespace hvd
