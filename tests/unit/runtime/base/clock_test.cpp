#include "runtime/base/clock.h"

#include <doctest/doctest.h>

#include "tests/support/still_clock.h"

namespace hvd::clock_test {

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

TEST_CASE("time in which a process was stopped is not watched, and what comes after it is") {
  using namespace std::chrono_literals;
  test::StillClock clock;
  WatchedTime time(7s);
  const TimePoint begin = time.look(clock.now());
  const auto after = [&](Duration passed) {
    clock.advance(passed);
    return time.look(clock.now()) - begin;
  };
  CHECK(after(0s) == 0s);
  CHECK(after(6s) == 6s);
  CHECK(after(7s) == 13s);
  CHECK(after(90s) == 13s);
  CHECK(after(10h) == 13s);
  CHECK(after(6s) == 19s);
  CHECK(time.look(clock.now() - 1s) - begin == 19s);  // a look whose clock was read before the last one's
  CHECK(after(1s) == 20s);
}

}  // namespace hvd::clock_test
