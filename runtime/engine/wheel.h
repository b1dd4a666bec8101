// Wheel: who turns the engine. One thread at a time holds it and with it all that is "engine only": the engine's own
// thread (the keeper), or a user's thread that waits for a result (a driver) and so needs no other thread to wake up,
// which costs more than a small collective does.
//
// The keeper is there for what nobody waits for: asynchronous operations, the end of the job. It never waits for the
// lock itself, or each driver that lets go would wake it, and the next one have the wheel before it comes. It sleeps on
// a descriptor of its own, in one of two ways:
//  - it dozes, while drivers come and go: it looks again after a while, and is called by a driver that leaves work
//    behind. So a loop of synchronous calls wakes it once per doze, not once per call;
//  - it parks, when nobody was here lately or a driver stays long: it sleeps until something calls it, which every
//    driver that leaves does then, so that it dozes from there on and someone is there after the last one.
// Thread: any; after a true try_take() or try_take_back() the caller holds it until release().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

class Wheel {
 public:
  static Result<std::unique_ptr<Wheel>> create();

  // Driver. False: someone else turns, and will bring the driver's result too.
  [[nodiscard]] bool try_take() {
    if (is_held_.exchange(true)) {
      return false;
    }
    drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  // All accesses are sequentially consistent: who has released looks afterwards whether it must call the keeper, and
  // who wants to sleep, or wakes another, says so before it looks who holds the wheel. So one of them sees the other.
  void release() { is_held_.store(false); }
  [[nodiscard]] bool is_held() const { return is_held_.load(); }

  // Driver, after release(): whether it must call.
  [[nodiscard]] bool is_parked() const { return is_parked_.load(); }
  // Has the keeper look again, soon. Costs nothing while an earlier call is unanswered. Thread: any.
  void call();

  // The rest is the keeper's.
  [[nodiscard]] bool try_take_back() { return !is_held_.exchange(true); }
  // While it holds the wheel: whether a driver was here since the last call.
  [[nodiscard]] bool was_driven();
  // After try_take_back() has failed: whether it is the driver that made it fail the last time.
  [[nodiscard]] bool is_same_driver();
  // Before it parks; without the wheel it must ask is_held() after that, and sleep only if it is.
  void park() { is_parked_.store(true); }
  // Sleeps until it is called, `fd` is readable (-1: none) or the time is over (-1: never).
  void sleep(int fd, int timeout_ms);

 private:
  explicit Wheel(Fd call_fd) : call_fd_(std::move(call_fd)) {}

  // constant after construction
  const Fd call_fd_;  // an eventfd that nobody else reads: a driver must not take a call away
  // any thread
  std::atomic<bool> is_held_ = false;
  std::atomic<bool> is_parked_ = false;
  std::atomic<bool> is_called_ = false;
  std::atomic<std::uint64_t> drives_ = 0;  // written by who holds the wheel
  // keeper only
  std::uint64_t seen_ = 0;
  std::uint64_t met_ = 0;
};

}  // namespace hvd
