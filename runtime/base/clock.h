// Time as a seam: everything that decides by time gets a Clock, so that tests move it by hand.
#pragma once

#include <chrono>

namespace hvd {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; not related to the time of day.
  [[nodiscard]] virtual TimePoint now() const = 0;

 protected:
  Clock() = default;
  Clock(const Clock&) = default;
  Clock& operator=(const Clock&) = default;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// A moment after which a wait gives up. Every wait in this project has one.
class Deadline {
 public:
  static Deadline after(Duration wait) { return Deadline(std::chrono::steady_clock::now() + wait); }
  explicit Deadline(TimePoint at) : at_(at) {}

  [[nodiscard]] TimePoint at() const { return at_; }
  [[nodiscard]] bool has_passed() const { return std::chrono::steady_clock::now() >= at_; }
  // For poll(2): whole milliseconds until then, rounded up so that a wait never ends early; 0 once passed.
  [[nodiscard]] int poll_ms() const {
    const auto left = at_ - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) {
      return 0;
    }
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return ms > kMaxPollMs ? kMaxPollMs : static_cast<int>(ms);
  }

 private:
  static constexpr int kMaxPollMs = 1'000'000'000;
  TimePoint at_;
};

// A wait until a deadline, by a process that may be stopped meanwhile: with Ctrl-Z, by a scheduler that suspends the
// job, with its whole machine. One that was stopped when the deadline passed has not heard what was said until then,
// and the others may have been stopped with it: they all get a while more, from the moment on in which they look.
class Patience {
 public:
  explicit Patience(Deadline deadline) : until_(deadline) {}

  // What to wait for next; ask is_over() then.
  [[nodiscard]] const Deadline& until() const { return until_; }
  // Whether the wait gives up. Must be asked whenever `until()` may have passed.
  [[nodiscard]] bool is_over() {
    if (!until_.has_passed()) {
      return false;
    }
    if (std::chrono::steady_clock::now() - until_.at() < kOverslept) {
      return true;
    }
    until_ = Deadline::after(kWhile);
    return false;
  }

 private:
  // Longer than a process that may run waits for a processor; shorter than anybody's stop.
  static constexpr Duration kOverslept = std::chrono::seconds(1);
  // In which a job's ranks are all awake again, also where a scheduler wakes one node after the other.
  static constexpr Duration kWhile = std::chrono::seconds(30);
  Deadline until_;
};

// For how long something has been watched, by a process that may be stopped meanwhile, as above. Thread: one at a time.
class WatchedTime {
 public:
  // Two looks that are further apart than `longest`: the process was stopped between them, and none of that counts. It
  // must be long against how late a look may be on a busy machine.
  explicit WatchedTime(Duration longest) : longest_(longest) {}

  // A moment to measure from and until; `now` is the clock's.
  TimePoint look(TimePoint now) {
    const Duration passed = now - last_;
    if (passed > Duration::zero()) {
      at_ += passed <= longest_ ? passed : Duration::zero();
      last_ = now;
    }
    return at_;
  }

 private:
  const Duration longest_;
  TimePoint last_{};
  TimePoint at_{};
};

}  // namespace hvd
