// Formats a duration for messages: "200 ms", "1.5 s", "30 s".
#pragma once

#include <string>

#include "runtime/base/clock.h"

namespace hvd {

inline std::string duration_text(Duration duration) {
  const auto ms = std::chrono::round<std::chrono::milliseconds>(duration).count();
  if (ms != 0 && ms < 1000) {
    return std::to_string(ms) + " ms";
  }
  const auto tenths = (ms + 50) / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace hvd
