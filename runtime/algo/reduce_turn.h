// ReduceTurn: what a rank does of a reduction among the ranks of its node before it goes on: it copies what is the
// others' to reduce, reduces what is its own, and copies what they have reduced. Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/core/scale.h"

namespace hvd {

// From one place to another, apart.
struct CopyRun {
  std::uint8_t* to = nullptr;
  const std::uint8_t* from = nullptr;
  std::size_t size_bytes = 0;
};

struct ReduceTurn {
  CopyRun published;
  // The result of all operands, in their order, of whole elements; then scaled. It may lie where one of the first two
  // operands does. One operand is its own result.
  std::span<const std::uint8_t* const> operands;
  std::uint8_t* result = nullptr;
  std::uint8_t* output = nullptr;  // where it is wanted too; null: nowhere. May be an operand
  std::size_t size_bytes = 0;      // of the result
  Scale scale;
  CopyRun taken;
};

}  // namespace hvd
