// Arithmetic on shapes that cannot overflow, because shapes come from callers and from other ranks. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/core/dtype.h"

namespace hvd {

using ShapeView = std::span<const std::int64_t>;

inline constexpr std::size_t kMaxDims = 16;  // HVD_MAX_DIMS

// Returns the bytes of a tensor. It returns nothing for a negative extent, or if the product of the extents that are
// not 0 exceeds an address space. An extent of 0 must not hide an overflow of the others.
inline std::optional<std::size_t> size_bytes_of(ShapeView shape, Dtype dtype) {
  // The limit is far above any memory and far below overflow, so that sums of a few such sizes still fit.
  constexpr std::size_t kLimit = std::size_t{1} << 56U;
  std::size_t bytes = size_of(dtype);
  bool is_empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return std::nullopt;
    }
    const auto factor = static_cast<std::size_t>(extent);
    if (factor == 0) {
      is_empty = true;
      continue;
    }
    if (bytes > kLimit / factor) {
      return std::nullopt;
    }
    bytes *= factor;
  }
  return is_empty ? 0 : bytes;
}

// The sum of two counts of bytes; SIZE_MAX where it is not to be had.
inline std::size_t sum_bytes(std::size_t a, std::size_t b) {
  return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

// Formats a shape: "[2, 3]"; "[]" is a scalar.
inline std::string shape_text(ShapeView shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace hvd
