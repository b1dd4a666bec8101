// PieceCursor walks through pieces once, from beginning to end, as if they were one array.
// It is the state of one operation. Thread: any, one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/core/piece.h"

namespace hvd {

// This is also correct for zero bytes at a null address.
inline void copy_bytes(std::uint8_t* to, const std::uint8_t* from, std::size_t size_bytes) {
  if (size_bytes != 0) {
    std::memcpy(to, from, size_bytes);
  }
}

class PieceCursor {
 public:
  explicit PieceCursor(std::span<const Piece> pieces) : pieces_(pieces) { leave_empty(); }

  // Moves forward to this offset, counted from the beginning of all pieces; it cannot move back.
  void skip_to(std::size_t offset) {
    advance(offset - passed_, [](const Piece&, std::size_t, std::size_t) {});
  }
  void copy_inputs(std::uint8_t* to, std::size_t size_bytes) {
    advance(size_bytes, [&to](const Piece& piece, std::size_t at, std::size_t bytes) {
      copy_bytes(to, static_cast<const std::uint8_t*>(piece.input) + at, bytes);
      to += bytes;
    });
  }
  void copy_to_outputs(const std::uint8_t* from, std::size_t size_bytes) {
    advance(size_bytes, [&from](const Piece& piece, std::size_t at, std::size_t bytes) {
      copy_bytes(static_cast<std::uint8_t*>(piece.output) + at, from, bytes);
      from += bytes;
    });
  }
  // The piece with the next byte, and the position in it. Not to be called at the end.
  [[nodiscard]] const Piece& piece() const { return pieces_.front(); }
  [[nodiscard]] std::size_t place() const { return at_; }  // in that piece

 private:
  template <typename Take>
  void advance(std::size_t size_bytes, const Take& take) {
    passed_ += size_bytes;
    while (size_bytes > 0) {
      const Piece& piece = pieces_.front();
      const std::size_t bytes = std::min(size_bytes, piece.size_bytes - at_);
      take(piece, at_, bytes);
      size_bytes -= bytes;
      at_ += bytes;
      leave_empty();
    }
  }
  // Skips finished and empty pieces, so that the current piece is never empty.
  void leave_empty() {
    while (!pieces_.empty() && at_ == pieces_.front().size_bytes) {
      pieces_ = pieces_.subspan(1);
      at_ = 0;
    }
  }

  std::span<const Piece> pieces_;
  std::size_t at_ = 0;      // position in the first of them
  std::size_t passed_ = 0;  // bytes of all pieces so far
};

}  // namespace hvd
