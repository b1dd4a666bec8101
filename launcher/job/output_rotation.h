// OutputRotation says how large a rank's file may grow, and how many old ones are kept: "10M", "1G:5". Value type.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

struct OutputRotation {
  std::uint64_t max_bytes = 0;  // 0: no limit
  int old_files = 1;

  friend bool operator==(const OutputRotation&, const OutputRotation&) = default;
};

// Reads SIZE[:COUNT]; SIZE is in bytes, or with K, M, G, T (of 1024). An error says what was expected.
Result<OutputRotation> parse_output_rotation(std::string_view text);

}  // namespace hvd::launch
