// runtime/engine/turn_lock: who lets go and who wants to sleep never miss each other.
#include "runtime/engine/turn_lock.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::turn_lock_test {
namespace {

// As the engine's own thread does it, but that it never looks by itself: so what it misses it waits for for ever.
void wait_for_turn(TurnLock& lock) {
  while (!lock.try_take_back()) {
    lock.park();
    lock.sleep(-1, lock.is_held() ? -1 : 0);
  }
}

void let_go(TurnLock& lock) {
  lock.release();
  if (lock.is_parked()) {
    lock.call();
  }
}

}  // namespace

TEST_CASE("one has the turn lock at a time, and the keeper learns whether another had it") {
  const auto lock = TurnLock::create().value();
  CHECK_FALSE(lock->is_held());
  CHECK(lock->try_take());
  CHECK(lock->is_held());
  CHECK_FALSE(lock->try_take());
  CHECK_FALSE(lock->try_take_back());
  CHECK_FALSE(lock->is_same_driver());
  CHECK_FALSE(lock->try_take_back());
  CHECK(lock->is_same_driver());
  lock->release();
  CHECK(lock->try_take());
  CHECK_FALSE(lock->is_same_driver());
  lock->release();
  CHECK(lock->try_take_back());
  CHECK(lock->was_driven());
  CHECK_FALSE(lock->was_driven());
}

TEST_CASE("a call is heard once, also one that came before the sleep, and the next one too") {
  const auto lock = TurnLock::create().value();
  for (int i = 0; i < 3; ++i) {
    lock->call();
    lock->call();
    lock->park();
    lock->sleep(-1, -1);
    CHECK_FALSE(lock->is_parked());
    lock->sleep(-1, 1);  // nobody calls: by its time
  }
}

TEST_CASE("a keeper that parks while drivers let go has the turn lock after the last one") {
  constexpr int kRounds = 500;
  constexpr int kDrivers = 3;
  const auto lock = TurnLock::create().value();
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
          if (lock->try_take()) {
            let_go(*lock);
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
      wait_for_turn(*lock);
      lock->release();
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
  CHECK_FALSE(lock->is_held());
}

TEST_CASE("a keeper that sleeps hears of all that it was called for") {
  constexpr int kCallers = 3;
  constexpr int kCalls = 2000;
  const auto lock = TurnLock::create().value();
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        const int mine = asked.fetch_add(1) + 1;
        lock->call();
        while (i % 10 == 0 && seen.load() < mine) {
          std::this_thread::yield();
        }
      }
    });
  }
  while (seen.load() < kCallers * kCalls) {
    lock->sleep(-1, -1);
    seen.store(asked.load());
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  CHECK(seen.load() == kCallers * kCalls);
}

}  // namespace hvd::turn_lock_test
