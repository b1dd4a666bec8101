#include "launcher/report/quantities.h"

#include <array>

#include "runtime/base/text.h"

namespace hvd::launch {
std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1000 && unit + 1 < kUnits.size()) {  // at 1000, so that no number has four digits
    number /= 1024;
    ++unit;
  }
  return formatted(number < 10 && unit > 0 ? "%.1f " : "%.0f ", number) + kUnits[unit];
}

std::string offset_text(Duration offset) {
  const bool is_behind = offset < Duration::zero();
  const Duration size = is_behind ? -offset : offset;
  const auto ms = std::chrono::round<std::chrono::milliseconds>(size).count();
  if (ms == 0) {
    return "0 ms";
  }
  const std::string sign = is_behind ? "-" : "+";
  const auto minutes = ms / 60'000;
  if (minutes >= 60) {
    return sign + std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
  }
  return minutes >= 2 ? sign + std::to_string(minutes) + " min" : sign + duration_text(std::chrono::milliseconds(ms));
}

std::string seconds_text(Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  return formatted(seconds < 9.995 ? "%.2f s" : "%.0f s", seconds);
}

std::string speed_text(std::int32_t mbit) {
  return mbit < 1000 ? std::to_string(mbit) + "M" : formatted("%.3gG", mbit / 1000.0);
}

}  // namespace hvd::launch
