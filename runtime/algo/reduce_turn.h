// ReduceTurn is a rank's share of a reduction among the ranks of its node, between two barriers: it publishes the data
// that others reduce, reduces its own share, and takes the results of the others. Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/core/scale.h"

namespace hvd {

// CopyRun copies from one place to another that does not overlap it.
struct CopyRun {
  std::uint8_t* to = nullptr;
  const std::uint8_t* from = nullptr;
  std::size_t size_bytes = 0;
};

struct ReduceTurn {
  CopyRun published;
  // The operands are reduced in their order, as whole elements, and the result is scaled. The result may be at the
  // address of one of the first two operands. A single operand is its own result.
  std::span<const std::uint8_t* const> operands;
  std::uint8_t* result = nullptr;
  std::uint8_t* output = nullptr;  // a second place for the result; null: none. May be an operand
  std::size_t size_bytes = 0;      // of the result
  Scale scale;
  CopyRun taken;
};

}  // namespace hvd
