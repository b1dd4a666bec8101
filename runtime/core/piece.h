// Piece: a part of what an operation works on, where that lies in several places and is as if it were one array.
#pragma once

#include <cstddef>

namespace hvd {

// Whole elements. `output` may be `input`; else they are apart.
struct Piece {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t size_bytes = 0;
};

// What inputs are multiplied by before a reduction, and its result after it. 1: nothing.
struct Scales {
  double before = 1.0;
  double after = 1.0;
};

}  // namespace hvd
