// Counters are the statistics of an engine, by process set, since it joined the job.
//
// Thread: one thread at a time writes SetCounters (the one that runs the engine), and any may read; the numbers of one
// read may be a moment apart. Counters itself: any (mutex mu_).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/observe/activity.h"
#include "runtime/observe/ticks.h"

namespace hvd {

// The counters of one process set, as read.
struct CounterValues {
  std::uint64_t operations = 0;  // finished without error
  std::uint64_t failures = 0;    // finished with an error
  std::uint64_t steps = 0;       // collectives of the operations; fused operations share one
  std::uint64_t bytes = 0;       // of the operations' inputs
  std::uint64_t requests = 0;    // operations that this rank asked for by message
  std::uint64_t known = 0;       // operations asked for by the bit of a known tensor
  double negotiate_s = 0;        // from the request until all ranks were known to be ready, summed over operations
  double wait_s = 0;             // from then until begun, summed over operations
  double move_s = 0;             // of steps, from begin to end
};

class SetCounters {
 public:
  // What is added is added to the rank's activity too.
  explicit SetCounters(std::shared_ptr<Activity> activity) : activity_(std::move(activity)) {}

  struct Step {
    OpKind kind = OpKind::kAllreduce;
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t negotiate_ticks = 0;
    std::uint64_t wait_ticks = 0;
    std::uint64_t move_ticks = 0;
    // These times are those of the step, not summed over its operations; see Activity::Step.
    std::uint64_t asked_at = 0;
    std::uint64_t known_at = 0;
    std::uint64_t ended_at = 0;
  };
  void add(const Step& step);
  // Adds an operation that took the quick path; `lasted_ticks` is 0 unless times_quick() asked for it. One thread at a
  // time calls these too, but it may be another one than the thread that runs the engine.
  void add_quick(OpKind kind, std::uint64_t bytes, std::uint64_t lasted_ticks) {
    raise(quick_operations_, 1);
    raise(quick_bytes_, bytes);
    activity_->add_quick(kind, bytes, lasted_ticks);
  }
  [[nodiscard]] bool times_quick(OpKind kind) const { return activity_->times_quick(kind); }
  void add_asked(std::uint64_t requests, std::uint64_t known) {
    raise(requests_, requests);
    raise(known_, known);
  }
  void add_failures(std::uint64_t operations) { raise(failures_, operations); }

  [[nodiscard]] CounterValues read(double seconds_per_tick) const;

 private:
  using Count = std::atomic<std::uint64_t>;
  // There is one writer, so the addition need not be atomic.
  static void raise(Count& count, std::uint64_t by) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  const std::shared_ptr<Activity> activity_;
  Count operations_ = 0;
  Count failures_ = 0;
  Count steps_ = 0;
  Count bytes_ = 0;
  Count requests_ = 0;
  Count known_ = 0;
  Count negotiate_ticks_ = 0;
  Count wait_ticks_ = 0;
  Count move_ticks_ = 0;
  Count quick_operations_ = 0;
  Count quick_bytes_ = 0;
};

class Counters {
 public:
  // `rank` of the job, for whoever watches it.
  explicit Counters(int rank) : activity_(std::make_shared<Activity>(rank)) {}

  // Returns the set's counters, which are made if there are none. The writer keeps them alive, also after remove().
  std::shared_ptr<SetCounters> of(int process_set);
  void remove(int process_set);
  // Returns nullopt if nothing was ever counted for this set.
  [[nodiscard]] std::optional<CounterValues> read(int process_set) const;
  [[nodiscard]] Activity& activity() { return *activity_; }
  // Counts that a thread that runs the engine, or wants to, went to sleep until work, a message or another rank wakes
  // it.
  void note_sleep() { sleeps_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  // Counts frames sent to agree with other ranks on what to do, one for each receiver.
  void note_sent(std::uint64_t messages, std::uint64_t bytes) {
    messages_.fetch_add(messages, std::memory_order_relaxed);
    message_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t message_bytes() const { return message_bytes_.load(std::memory_order_relaxed); }

 private:
  // constant after construction
  const TickScale scale_;
  const std::shared_ptr<Activity> activity_;  // shared with the SetCounters
  // any thread
  std::atomic<std::uint64_t> sleeps_ = 0;
  std::atomic<std::uint64_t> messages_ = 0;
  std::atomic<std::uint64_t> message_bytes_ = 0;
  // guarded by mu_
  mutable std::mutex mu_;
  std::map<int, std::shared_ptr<SetCounters>> sets_;
};

}  // namespace hvd
