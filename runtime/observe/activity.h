// Activity says in shared memory what the libhvd of this rank does (activity_page.h), for hvdrun top, the metrics and
// the tree of stacks. Where such memory cannot be had it says it to nobody, and the job goes on.
//
// Thread: show() and clear(): one at a time, under the caller's mutex. add(): one thread at a time, that runs the
// engine; add_quick(): one at a time. The destructor: after all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/fd.h"
#include "runtime/core/op_kind.h"
#include "runtime/observe/activity_page.h"
#include "runtime/observe/ticks.h"

namespace hvd {

class Activity {
 public:
  explicit Activity(int rank);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  struct Step {
    OpKind kind = OpKind::kAllreduce;
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t asked_at = 0;  // ticks: when this rank had asked for all of them ...
    std::uint64_t known_at = 0;  // ... when all ranks had ...
    std::uint64_t ended_at = 0;  // ... and when the step was done
  };
  void add(const Step& step);
  // The next quick operation of this kind is to be timed. The smallest ones last less than a microsecond, so a clock is
  // not read for each.
  [[nodiscard]] bool times_quick(OpKind kind) const {
    return quick_of(kind).operations.load(std::memory_order_relaxed) % kQuickPerClock == 0;
  }
  // `lasted_ticks`: 0 where it was not timed.
  void add_quick(OpKind kind, std::uint64_t bytes, std::uint64_t lasted_ticks) {
    ActivityCounts& counts = quick_of(kind);
    raise(counts.operations, 1);
    raise(counts.bytes, bytes);
    if (lasted_ticks != 0) {
      raise(counts.lasted_ticks, lasted_ticks * kQuickPerClock);
    }
  }
  // The rank waits for this operation.
  void show(OpKind kind, std::string_view name, std::uint64_t asked_at_ticks);
  void clear();

 private:
  // A prime, so that a loop of several operations does not time the same one each time.
  static constexpr std::uint64_t kQuickPerClock = 17;

  using Count = std::atomic<std::uint64_t>;
  static void raise(Count& count, std::uint64_t by) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  [[nodiscard]] ActivityCounts& quick_of(OpKind kind) const { return page_->quick[static_cast<std::size_t>(kind)]; }
  void write(std::string_view operation, std::string_view tensor, std::uint64_t asked_ns);

  const TickScale scale_;
  std::uint64_t last_ended_at_ = 0;  // add() only
  ActivityPage own_;                 // where there is no shared memory
  ActivityPage* page_ = &own_;       // in memory that readers can find, if that can be had
  Fd memory_;
};

}  // namespace hvd
