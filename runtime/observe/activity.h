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

  void add(std::uint64_t operations, std::uint64_t bytes) {
    raise(page_->operations, operations);
    raise(page_->bytes, bytes);
  }
  void add_quick(std::uint64_t bytes) {
    raise(page_->quick_operations, 1);
    raise(page_->quick_bytes, bytes);
  }
  // The rank waits for this operation.
  void show(OpKind kind, std::string_view name, std::uint64_t asked_at_ticks);
  void clear();

 private:
  using Count = std::atomic<std::uint64_t>;
  static void raise(Count& count, std::uint64_t by) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  void write(std::string_view operation, std::string_view tensor, std::uint64_t asked_ns);

  const TickScale scale_;
  ActivityPage own_;            // where there is no shared memory
  ActivityPage* page_ = &own_;  // in memory that readers can find, if that can be had
  Fd memory_;
};

}  // namespace hvd
