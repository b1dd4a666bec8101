// VirtualTime: an event loop whose clock goes on by itself to the next timer as soon as nothing else is to be done. So
// a test of an hour takes milliseconds, and the order of its events is always the same.
//
// Thread: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <doctest/doctest.h>

#include "runtime/io/event_loop.h"
#include "tests/support/still_clock.h"

namespace hvd::test {

class VirtualTime {
 public:
  VirtualTime() : loop_(EventLoop::create(clock_).value()), began_(clock_.now()) { pump(); }
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  [[nodiscard]] EventLoop& loop() { return *loop_; }
  // How long the test has lasted by its own clock.
  [[nodiscard]] Duration passed() const { return clock_.now() - began_; }
  void advance(Duration by) { clock_.advance(by); }

 private:
  // What one event causes is posted, and posts in turn: after so many turns all of it is done.
  static constexpr std::uint64_t kCalmTurns = 4;
  // A test that waits for what cannot come has had this many.
  static constexpr std::uint64_t kMostTurns = 2'000'000;
  // Where no timer is set, somebody may still wait until a deadline.
  static constexpr Duration kStep = std::chrono::milliseconds(50);

  // A task that posts itself keeps the loop from sleeping.
  void pump() {
    loop_->post([this] {
      if (++turns_ == kMostTurns) {
        FAIL("nothing comes of it after " << passed().count() / 1'000'000 << " ms");
      }
      if (turns_ % kCalmTurns == 0) {
        const int ms = loop_->sleep_ms();
        clock_.advance(ms < 0 ? kStep : Duration(std::chrono::milliseconds(ms)));
      }
      pump();
    });
  }

  StillClock clock_;
  std::unique_ptr<EventLoop> loop_;
  const TimePoint began_;
  std::uint64_t turns_ = 0;
};

}  // namespace hvd::test
