// runtime/observe/counters and ticks.
#include "runtime/observe/counters.h"

#include <signal.h>
#include <sys/resource.h>

#include <thread>

#include <doctest/doctest.h>

namespace hvd::counters_test {

TEST_CASE("steps add up, by process set") {
  Counters counters(0);
  CHECK_FALSE(counters.read(0));
  counters.of(0)->add({OpKind::kAllreduce, 3, 300, 10, 20, 30, 0, 0, 0});
  counters.of(0)->add({OpKind::kBroadcast, 1, 5, 1, 2, 3, 0, 0, 0});
  counters.of(0)->add_failures(2);
  counters.of(7)->add_quick(OpKind::kBarrier, 1, 0);
  const auto values = counters.of(0)->read(0.5);
  CHECK(values.operations == 4);
  CHECK(values.failures == 2);
  CHECK(values.steps == 2);
  CHECK(values.bytes == 305);
  CHECK(values.negotiate_s == 5.5);
  CHECK(values.wait_s == 11);
  CHECK(values.move_s == 16.5);
  CHECK(counters.read(7)->operations == 1);
  counters.remove(7);
  CHECK_FALSE(counters.read(7));
}

TEST_CASE("a reader beside the writer sees numbers that only grow") {
  Counters counters(0);
  const auto kept = counters.of(0);
  SetCounters& set = *kept;
  std::thread writer([&set] {
    for (int i = 0; i < 20000; ++i) {
      set.add({OpKind::kAllreduce, 1, 8, 1, 1, 1, 0, 0, 0});
    }
  });
  std::uint64_t last = 0;
  while (last < 20000) {
    const auto now = counters.read(0)->operations;
    REQUIRE(now >= last);
    last = now;
  }
  writer.join();
}

TEST_CASE("ticks are time") {
  const TickScale scale;
  // Each clock once inside the other, since the thread may lose its processor between any two of the reads.
  const std::uint64_t first = ticks_now();
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t inner_first = ticks_now();
  while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(20)) {
  }
  const std::uint64_t inner_last = ticks_now();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const std::uint64_t last = ticks_now();
  const auto seconds = [&](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(ticks_between(from, to)) * scale.seconds_per_tick();
  };
  CHECK(seconds(first, last) >= took.count() * 0.95);
  CHECK(seconds(inner_first, inner_last) <= took.count() * 1.05);
  CHECK(ticks_between(last, first) == 0);
}

TEST_CASE("a rank counts also where ulimit -f leaves no room for the page that others read") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_DFL);  // it would end the process
  const rlimit low{1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  Counters counters(3);
  CHECK(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, handler);
  counters.of(0)->add({OpKind::kAllreduce, 2, 8, 1, 1, 1, 0, 0, 0});
  CHECK(counters.of(0)->read(1).operations == 2);
}

}  // namespace hvd::counters_test
