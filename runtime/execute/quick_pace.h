// QuickPace decides which operations of a process set try the quick path between hosts. A try that fails costs
// milliseconds, so where tries fail one after the other, only every second, fourth, ... 256th operation tries; one that
// succeeds makes all try again.
//
// Ranks that miss each other have seen different failures, and try at different rates. So an operation's number, which
// is the same on all ranks, decides whether it tries: the operations of a lower rate are among those of any higher one,
// and all ranks meet at the next of the lowest. They are spread by the golden ratio, so that the numbers of a program
// whose operations repeat with some period are among them too. Not synchronized.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hvd {

class QuickPace {
 public:
  // At the lowest rate, the numbers of two operations that try differ by at most this.
  static constexpr std::uint64_t kLongestPause = 377;

  [[nodiscard]] bool tries(std::uint64_t number) const { return number * kGolden <= UINT64_MAX >> halvings(); }
  void note(bool is_done) { failed_ = is_done ? 0 : std::min(failed_ + 1, kMostHalvings + 1); }

 private:
  // 2^64 divided by the golden ratio. The multiples of that ratio, modulo 1, that are below some bound come at almost
  // equal distances, which are Fibonacci numbers.
  static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;
  static constexpr unsigned kMostHalvings = 8;

  // One failure alone lowers nothing.
  [[nodiscard]] unsigned halvings() const { return failed_ == 0 ? 0 : failed_ - 1; }

  unsigned failed_ = 0;  // in a row
};

}  // namespace hvd
