// DoneQueue holds the handles of operations that have ended, for threads of the program that handle each result as it
// comes.
//
// Thread: any (mutex mu_).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "runtime/base/clock.h"

namespace hvd {

class DoneQueue {
 public:
  // It never waits for the threads that take handles.
  void push(std::int64_t handle) {
    {
      const std::lock_guard lock(mu_);
      done_.push_back(handle);
    }
    changed_.notify_one();
  }

  // Returns the handle that was pushed first, or nothing if none comes in time.
  std::optional<std::int64_t> next(Deadline deadline) {
    std::unique_lock lock(mu_);
    if (!changed_.wait_until(lock, deadline.at(), [this] { return !done_.empty(); })) {
      return std::nullopt;
    }
    const std::int64_t handle = done_.front();
    done_.pop_front();
    return handle;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::int64_t> done_;  // guarded by mu_
};

}  // namespace hvd
