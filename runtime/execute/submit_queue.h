// SubmitQueue is the queue from user threads to the engine: it takes operations in, and has one eventfd to wake the
// engine.
//
// It is not bounded: each element is an operation whose handle its caller holds. It also keeps the names in use, so
// that a second operation of the same name is refused at the call, and not later as an error of the negotiation.
// A write to the eventfd costs a system call and often the wake-up of a thread. So it is written only after the engine
// has declared that it sleeps. It is not written for a caller that is about to run the engine itself; for a caller that
// probably will, a timer is set instead.
// Thread: any (mutex mu_); take(), close(), sleep() and stay_awake(): engine only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/core/block_pool.h"
#include "runtime/execute/pending_op.h"
#include "runtime/execute/quick_path.h"
#include "runtime/observe/activity.h"

namespace hvd {

class SubmitQueue {
 public:
  // Who watches the job sees in `activity`, which must outlive the queue, what this rank waits for.
  static Result<std::unique_ptr<SubmitQueue>> create(Activity& activity);

  // Returns a new operation, to be filled in and pushed. It must not outlive the queue.
  OpRef get_op() { return pool_.get(); }
  // Pushes one operation, or the operations of a group: it takes all, side by side, or none. kInvalid: a name is in
  // use, or a join is pending. kNotFound: the process set is being removed. After close(): the reason given to it. It
  // wakes no thread; see rouse().
  Result<void> push(std::span<OpRef> ops);
  // Reserves the name for an operation that runs without the engine. True if nothing else is pending on this rank and
  // the operation could be submitted. `op` is the caller's; until leave_alone() its name cannot be used.
  bool enter_alone(int process_set, const QuickOp& op);
  void leave_alone();

  // After push(): returns whether the engine sleeps, so that the caller has to wake it. Only one caller gets true.
  [[nodiscard]] bool rouse() { return is_asleep_.exchange(false); }
  // Does the same some milliseconds later, if the engine has not taken what was pushed by then.
  void rouse_later();

  // Call before the engine sleeps. False: something was pushed, so the engine must not sleep.
  bool sleep();
  void stay_awake() { is_asleep_.store(false, std::memory_order_relaxed); }
  // It may miss what other threads are pushing at this moment.
  [[nodiscard]] bool has_waiting() const { return has_waiting_.load(std::memory_order_relaxed); }
  // Call after the engine was released. Sequentially consistent, as in push(). Thread: any.
  [[nodiscard]] bool has_more() const { return has_waiting_.load(); }
  // Takes everything pushed since the last call, in order. `into` is empty; its memory is used again.
  void take(std::vector<OpRef>& into);
  // Frees the name. Call it before the operation's Completion is finished, or the caller's next push could be refused.
  void forget(const OpKey& key);
  // Some thread is about to sleep until an operation has ended: shows the oldest one.
  void show_oldest();
  // True if this rank's program has asked for the removal of the process set. Thread: any.
  [[nodiscard]] bool has_ended(int process_set) const {
    const std::lock_guard lock(mu_);
    return ended_sets_.contains(process_set);
  }
  // The removal of this process set was refused. Call this before the Completion is finished, too.
  void reopen_set(int process_set);
  // Refuses everything from now on; returns what the engine had not taken.
  std::vector<OpRef> close(Error why);

  // True after close(). Thread: any.
  [[nodiscard]] bool is_closed() const {
    const std::lock_guard lock(mu_);
    return closed_.has_value();
  }

  // Readable after wake(), until quiet().
  [[nodiscard]] int fd() const { return event_fd_.get(); }
  // Readable after rouse_later() in the same way.
  [[nodiscard]] int timer_fd() const { return timer_fd_.get(); }
  void wake();
  void quiet();

 private:
  // What is kept of an operation whose name is in use.
  struct Asked {
    OpKind kind{};
    std::uint64_t at = 0;  // ticks
  };
  // A name is forgotten before its operation is destroyed, which owns the memory.
  using Names =
      std::unordered_map<OpKey, Asked, OpKeyHash, std::equal_to<>, BlockAllocator<std::pair<const OpKey, Asked>>>;

  SubmitQueue(Activity& activity, Fd event_fd, Fd timer_fd)
      : activity_(activity), event_fd_(std::move(event_fd)), timer_fd_(std::move(timer_fd)) {}
  void set_timer(bool is_on);
  void drop_name(const OpKey& key);

  // constant after construction
  Activity& activity_;  // guarded by mu_
  Fd event_fd_;
  Fd timer_fd_;
  OpPool pool_;
  // any thread
  std::atomic<bool> has_waiting_ = false;
  std::atomic<bool> is_asleep_ = false;
  std::atomic<bool> is_timer_on_ = false;
  // guarded by mu_
  mutable std::mutex mu_;
  std::vector<OpRef> waiting_;
  Names names_{Names::allocator_type(std::make_shared<BlockPool>())};
  const OpKey* shown_ = nullptr;    // of names_: the one that the activity shows
  const QuickOp* alone_ = nullptr;  // of enter_alone()
  int alone_set_ = 0;
  bool is_alone_shown_ = false;
  std::unordered_set<int> ended_sets_;  // their removal was requested, so nothing may follow it
  bool is_joining_ = false;             // then kJoinName in names_ is the join's
  std::optional<Error> closed_;
};

}  // namespace hvd
