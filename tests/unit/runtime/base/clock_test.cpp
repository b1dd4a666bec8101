#include "runtime/base/clock.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("a wait is not over before its deadline, and is once that has passed") {
  Patience early(Deadline::after(std::chrono::hours(1)));
  CHECK_FALSE(early.is_over());
  CHECK(early.until().at() > std::chrono::steady_clock::now() + std::chrono::minutes(59));
  // On a machine so busy that it is looked at late, it is as after a stop: then it goes on, and passes again.
  bool is_over = false;
  for (int i = 0; i < 100 && !is_over; ++i) {
    Patience passed(Deadline::after(Duration::zero()));
    is_over = passed.is_over();
  }
  CHECK(is_over);
}

TEST_CASE("a process that was stopped while its deadline passed waits a while more, from now on, each time") {
  for (const Duration stopped : {Duration(std::chrono::seconds(2)), Duration(std::chrono::hours(10))}) {
    Patience patience(Deadline::after(-stopped));
    const auto now = std::chrono::steady_clock::now();
    CHECK_FALSE(patience.is_over());
    CHECK(patience.until().at() > now);
    CHECK_FALSE(patience.is_over());
  }
}
