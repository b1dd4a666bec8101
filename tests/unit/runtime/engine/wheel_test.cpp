// runtime/engine/wheel: who lets go and who wants to sleep never miss each other.
#include "runtime/engine/wheel.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace hvd;

namespace {

// As the engine's own thread does it, but that it never looks by itself: so what it misses it waits for for ever.
void wait_for_wheel(Wheel& wheel) {
  while (!wheel.try_take_back()) {
    wheel.park();
    wheel.sleep(-1, wheel.is_held() ? -1 : 0);
  }
}

void let_go(Wheel& wheel) {
  wheel.release();
  if (wheel.is_parked()) {
    wheel.call();
  }
}

}  // namespace

TEST_CASE("one has the wheel at a time, and the keeper learns whether another had it") {
  const auto wheel = Wheel::create().value();
  CHECK_FALSE(wheel->is_held());
  CHECK(wheel->try_take());
  CHECK(wheel->is_held());
  CHECK_FALSE(wheel->try_take());
  CHECK_FALSE(wheel->try_take_back());
  CHECK_FALSE(wheel->is_same_driver());
  CHECK_FALSE(wheel->try_take_back());
  CHECK(wheel->is_same_driver());
  wheel->release();
  CHECK(wheel->try_take());
  CHECK_FALSE(wheel->is_same_driver());
  wheel->release();
  CHECK(wheel->try_take_back());
  CHECK(wheel->was_driven());
  CHECK_FALSE(wheel->was_driven());
}

TEST_CASE("a call is heard once, also one that came before the sleep, and the next one too") {
  const auto wheel = Wheel::create().value();
  for (int i = 0; i < 3; ++i) {
    wheel->call();
    wheel->call();
    wheel->park();
    wheel->sleep(-1, -1);
    CHECK_FALSE(wheel->is_parked());
    wheel->sleep(-1, 1);  // nobody calls: by its time
  }
}

TEST_CASE("a keeper that parks while drivers let go has the wheel after the last one") {
  constexpr int kRounds = 500;
  constexpr int kDrivers = 3;
  const auto wheel = Wheel::create().value();
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  std::atomic<int> driven{0};
  std::vector<std::thread> drivers;
  for (int driver = 0; driver < kDrivers; ++driver) {
    drivers.emplace_back([&, driver] {
      for (int round = 1; round <= kRounds; ++round) {
        while (begun.load() < round) {
          std::this_thread::yield();
        }
        for (int i = 0; i < 1 + (round + driver) % 7; ++i) {
          if (wheel->try_take()) {
            let_go(*wheel);
          }
        }
        driven.fetch_add(1);
      }
    });
  }
  std::thread keeper([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load() < round) {
        std::this_thread::yield();
      }
      wait_for_wheel(*wheel);
      wheel->release();
      ended.store(round);
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    begun.store(round);
    while (ended.load() < round || driven.load() < round * kDrivers) {
      std::this_thread::yield();
    }
  }
  keeper.join();
  for (std::thread& driver : drivers) {
    driver.join();
  }
  CHECK_FALSE(wheel->is_held());
}

TEST_CASE("a keeper that sleeps hears of all that it was called for") {
  constexpr int kCallers = 3;
  constexpr int kCalls = 2000;
  const auto wheel = Wheel::create().value();
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        const int mine = asked.fetch_add(1) + 1;
        wheel->call();
        while (i % 10 == 0 && seen.load() < mine) {
          std::this_thread::yield();
        }
      }
    });
  }
  while (seen.load() < kCallers * kCalls) {
    wheel->sleep(-1, -1);
    seen.store(asked.load());
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  CHECK(seen.load() == kCallers * kCalls);
}
