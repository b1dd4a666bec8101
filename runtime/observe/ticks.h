// Ticks are the cheapest clock of the processor, for measurements in every operation; the smallest operations take
// about a microsecond. A tick's length is known only by comparison (TickScale), and is the same on all processors of a
// machine. It is x86-64's invariant time-stamp counter (Intel SDM 3B 18.17), AArch64's virtual counter, or elsewhere
// nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace hvd {

inline std::uint64_t ticks_now() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// TickScale converts ticks to time, by comparing the two clocks at its construction and now; it is the more exact the
// longer ago that was. Value type.
class TickScale {
 public:
  TickScale() : began_ticks_(ticks_now()), began_(std::chrono::steady_clock::now()) {}

  // Returns seconds per tick; 0 if no time has passed.
  [[nodiscard]] double seconds_per_tick() const {
    const auto ticks = static_cast<double>(ticks_now() - began_ticks_);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
    return ticks > 0 ? seconds.count() / ticks : 0;
  }
  [[nodiscard]] std::uint64_t began() const { return began_ticks_; }

 private:
  std::uint64_t began_ticks_;
  std::chrono::steady_clock::time_point began_;
};

// Counters of different processors may differ by a few ticks, so a negative difference counts as 0.
constexpr std::uint64_t ticks_between(std::uint64_t from, std::uint64_t to) {
  return to > from ? to - from : 0;
}

}  // namespace hvd
