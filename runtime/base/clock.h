// Clock is the interface to time. All code that decides by time gets a Clock, so that tests can set the time.
#pragma once

#include <chrono>
#include <cstdint>

namespace hvd {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  // The time is monotonic, and unrelated to the time of day.
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

// The nanoseconds of the same clock, which all processes of a machine have in common.
inline std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(Duration(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// The nanoseconds since 1970, by the machine's time of day.
inline std::int64_t unix_ns() {
  return Duration(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Deadline is the moment at which a wait gives up. Every wait in this project has one.
class Deadline {
 public:
  static Deadline after(Duration wait) { return Deadline(std::chrono::steady_clock::now() + wait); }
  explicit Deadline(TimePoint at) : at_(at) {}

  [[nodiscard]] TimePoint at() const { return at_; }
  [[nodiscard]] bool has_passed() const { return std::chrono::steady_clock::now() >= at_; }
  // The whole milliseconds until then, for poll(2), rounded up so that a wait never ends early; 0 once passed.
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

// Patience is a wait until a deadline by a process that may be stopped meanwhile: with Ctrl-Z, by a scheduler that
// suspends the job, or with its whole machine. A process that was stopped when the deadline passed has missed messages,
// and the other ranks may have been stopped too. So the wait is extended by kWhile, counted from the moment when the
// process runs again.
class Patience {
 public:
  explicit Patience(Deadline deadline) : until_(deadline) {}

  // The deadline to wait for next; call is_over() after it.
  [[nodiscard]] const Deadline& until() const { return until_; }
  // Whether the wait gives up. Call it whenever `until()` may have passed.
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
  // This is longer than a runnable process waits for a processor, and shorter than any real stop.
  static constexpr Duration kOverslept = std::chrono::seconds(1);
  // In this time all ranks of a job are awake again, even if a scheduler wakes one node after the other.
  static constexpr Duration kWhile = std::chrono::seconds(30);
  Deadline until_;
};

// WatchedTime measures how long something has been watched, by a process that may be stopped meanwhile, as above.
// Thread: one at a time.
class WatchedTime {
 public:
  // If two looks are further apart than `longest`, the process was stopped between them, and that time does not count.
  // It must be long compared with the delay of a look on a busy machine.
  explicit WatchedTime(Duration longest) : longest_(longest) {}

  // Returns a moment to measure from and until; `now` is the clock's.
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
