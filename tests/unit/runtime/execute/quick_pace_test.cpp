#include "runtime/execute/quick_pace.h"

#include <algorithm>

#include <doctest/doctest.h>

namespace hvd::quick_pace_test {
namespace {

QuickPace after_failures(int failures) {
  QuickPace pace;
  for (int i = 0; i < failures; ++i) {
    pace.note(false);
  }
  return pace;
}

constexpr int kMostFailures = 20;

}  // namespace

TEST_CASE("every operation tries, also after one failure alone, and again after one success") {
  QuickPace pace = after_failures(kMostFailures);
  pace.note(true);
  for (std::uint64_t number = 0; number < 10'000; ++number) {
    CHECK((after_failures(0).tries(number) && after_failures(1).tries(number) && pace.tries(number)));
  }
}

TEST_CASE("an operation that tries at a lower rate tries at every higher one, so that ranks always meet") {
  for (int failures = 1; failures < kMostFailures; ++failures) {
    const QuickPace higher = after_failures(failures - 1);
    const QuickPace lower = after_failures(failures);
    for (std::uint64_t number = 0; number < 50'000; ++number) {
      CHECK((higher.tries(number) || !lower.tries(number)));
    }
  }
}

TEST_CASE("each failure after the first halves the rate, down to one operation of 256, and none waits for long") {
  for (int failures = 1; failures < kMostFailures; ++failures) {
    const QuickPace pace = after_failures(failures);
    constexpr std::uint64_t kNumbers = 1U << 20U;
    std::uint64_t tried = 0;
    std::uint64_t last = 0;
    for (std::uint64_t number = 0; number < kNumbers; ++number) {
      if (pace.tries(number)) {
        CHECK(number - last <= QuickPace::kLongestPause);
        last = number;
        ++tried;
      }
    }
    const std::uint64_t expected = kNumbers >> std::min(failures - 1, 8);
    CHECK(tried > expected * 99 / 100);
    CHECK(tried < expected * 101 / 100 + 2);
  }
}

TEST_CASE("a program whose operations repeat with some period tries at the lowest rate too") {
  const QuickPace pace = after_failures(kMostFailures);
  for (std::uint64_t period = 1; period <= 64; ++period) {
    for (std::uint64_t first = 0; first < period; first += 1 + period / 4) {
      std::uint64_t in_vain = 0;
      while (!pace.tries(first + in_vain * period)) {
        ++in_vain;
      }
      CHECK_MESSAGE(in_vain < 10'000, period);
    }
  }
}

}  // namespace hvd::quick_pace_test
