// TurnLock is what a thread holds while it runs the engine: the one thread that holds it may use everything that is
// "engine only". The holder is the engine's own thread (the keeper), or a user's thread that waits for a result (a
// driver). A driver needs no other thread to wake up, which would cost more than a small collective does.
//
// The keeper does the work for which no thread waits: asynchronous operations, and the end of the job. It never blocks
// on the lock itself. If it did, each driver that releases the lock would wake it, and the next driver would take the
// lock before it runs. Instead it sleeps on a descriptor of its own, in one of two ways:
// - it dozes while drivers come and go: it looks again after a while, and a driver that leaves work behind calls it. So
//   a loop of synchronous calls wakes it once per doze, and not once per call;
// - it parks if no driver came lately or one stays long: it sleeps until something calls it. Every driver that leaves
//   then calls it, after which it dozes, so that a thread is there after the last driver.
// Thread: any; after try_take() or try_take_back() returned true, the caller holds the lock until release().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

class TurnLock {
 public:
  static Result<std::unique_ptr<TurnLock>> create();

  // Takes the lock for a driver. False: another thread runs the engine, and will bring the driver's result too.
  [[nodiscard]] bool try_take() {
    if (is_held_.exchange(true)) {
      return false;
    }
    drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  // All accesses are sequentially consistent. A thread that has released the lock checks afterwards whether it must
  // call the keeper. A thread that wants to sleep, or wakes another, announces it before it checks who holds the lock.
  // So one of the two sees the other.
  void release() { is_held_.store(false); }
  [[nodiscard]] bool is_held() const { return is_held_.load(); }

  // For a driver, after release(): whether it must call the keeper.
  [[nodiscard]] bool is_parked() const { return is_parked_.load(); }
  // Makes the keeper look again soon. It costs nothing while an earlier call is unanswered. Thread: any.
  void call();

  // The functions below are for the keeper.
  [[nodiscard]] bool try_take_back() { return !is_held_.exchange(true); }
  // While the keeper holds the lock: whether a driver held it since the last call.
  [[nodiscard]] bool was_driven();
  // After try_take_back() has failed: whether the same driver holds the lock as at the last failure.
  [[nodiscard]] bool is_same_driver();
  // Call before parking. Without the lock, the keeper must check is_held() after that, and sleep only if it is held.
  void park() { is_parked_.store(true); }
  // Sleeps until the keeper is called, `fd` is readable (-1: none) or the time has passed (-1: never).
  void sleep(int fd, int timeout_ms);

 private:
  explicit TurnLock(Fd call_fd) : call_fd_(std::move(call_fd)) {}

  // constant after construction
  const Fd call_fd_;  // an eventfd that no other thread reads: a driver must not consume a call
  // any thread
  std::atomic<bool> is_held_ = false;
  std::atomic<bool> is_parked_ = false;
  std::atomic<bool> is_called_ = false;
  std::atomic<std::uint64_t> drives_ = 0;  // written by the thread that holds the lock
  // keeper only
  std::uint64_t seen_ = 0;
  std::uint64_t met_ = 0;
};

}  // namespace hvd
