// Piece: a part of what an operation works on, where that lies in several places and is as if it were one array.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/core/scale.h"

namespace hvd {

// Whole elements. `output` may be `input`; else they are apart.
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

// A part of what an operation works on in place that lies at the same place of the memory that each rank of the node
// shares with the others (ShmSegment::arena).
struct SharedPiece {
  std::size_t offset = 0;
  std::size_t size_bytes = 0;
};

// Of inputs before a reduction, and of its result after it.
struct Scales {
  Scale before;
  Scale after;
};

}  // namespace hvd
