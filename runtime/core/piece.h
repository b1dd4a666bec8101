// Piece is one of several separate parts of memory that an operation treats as one array, so that fused tensors need
// not be copied together.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/core/scale.h"

namespace hvd {

// A piece holds whole elements. `output` equals `input`, or does not overlap it.
struct Piece {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t size_bytes = 0;
};

inline std::size_t bytes_of(std::span<const Piece> pieces) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) {
    bytes += piece.size_bytes;
  }
  return bytes;
}

// SharedPiece is a part of an operation in place, in the memory that the ranks of a node share (ShmSegment::arena). It
// is at the same offset on each rank.
struct SharedPiece {
  std::size_t offset = 0;
  std::size_t size_bytes = 0;
};

// Scales are the factors of an input before a reduction, and of the result after it.
struct Scales {
  Scale before;
  Scale after;
};

}  // namespace hvd
