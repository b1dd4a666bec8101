// Arithmetic on shapes that cannot overflow: shapes come from callers and from other ranks. Pure functions.
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

// Bytes of a tensor. Nothing for a negative extent, or when the extents, those of 0 left out, would not fit an address
// space: an empty tensor must not hide a product that overflows elsewhere.
inline std::optional<std::size_t> size_bytes_of(ShapeView shape, Dtype dtype) {
  // Far above any memory, far below overflow: sums of a few such sizes still fit.
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

// "[2, 3]"; "[]" is a scalar.
inline std::string shape_text(ShapeView shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace hvd
