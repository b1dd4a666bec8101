// SubmitQueue: the way from user threads to the engine: operations in, one eventfd to wake it.
//
// Not bounded: each element is an operation whose handle its caller holds. It also keeps the names that are in use, so
// that a second operation of the same name is refused at the call and not as a defect of the negotiation.
// The eventfd costs a system call and often a thread's start, so it is written only when the engine has said that it
// sleeps, and not for a caller who is about to turn the engine himself; for one who likely is, a timer stands by.
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
#include <unordered_set>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/core/block_pool.h"
#include "runtime/execute/pending_op.h"

namespace hvd {

class SubmitQueue {
 public:
  static Result<std::unique_ptr<SubmitQueue>> create();

  // A new operation, to be filled in and pushed. Must not outlive the queue.
  OpRef get_op() { return pool_.get(); }
  // One, or the operations of a group: all are taken, and side by side, or none. kInvalid for a name in use, and for
  // everything while a join is pending; kNotFound for a process set that is being removed; the reason given to close()
  // after it. Wakes nobody: see rouse().
  Result<void> push(std::span<OpRef> ops);
  // For an operation that is done without the engine: true while nothing else is pending on this rank, and nothing may
  // keep it from being submitted. Until leave_alone() its name (which the caller keeps; empty: none) cannot be used.
  bool enter_alone(int process_set, std::string_view name);
  void leave_alone();

  // After push(): whether the engine sleeps, so that the caller has to wake it; asked by one, it is told no other.
  [[nodiscard]] bool rouse() { return is_asleep_.exchange(false); }
  // The same some milliseconds later, if nobody has taken what was pushed by then.
  void rouse_later();

  // Before the engine sleeps. False: something was pushed, so it must not.
  bool sleep();
  void stay_awake() { is_asleep_.store(false, std::memory_order_relaxed); }
  // May be late by what other threads are pushing just now.
  [[nodiscard]] bool has_waiting() const { return has_waiting_.load(std::memory_order_relaxed); }
  // After the engine was let go. Sequentially consistent, as in push(). Thread: any.
  [[nodiscard]] bool has_more() const { return has_waiting_.load(); }
  // Everything pushed since the last call, in order. `into` is empty; its memory is used again.
  void take(std::vector<OpRef>& into);
  // The name may be used again. Before its Completion is finished, or the caller's next push could be refused.
  void forget(const OpKey& key);
  // The removal of this process set was refused. Before its Completion is finished, too.
  void reopen_set(int process_set);
  // Refuses everything from now on; returns what had not been taken.
  std::vector<OpRef> close(Error why);

  // Readable after wake(), until quiet().
  [[nodiscard]] int fd() const { return event_fd_.get(); }
  // The same after rouse_later().
  [[nodiscard]] int timer_fd() const { return timer_fd_.get(); }
  void wake();
  void quiet();

 private:
  SubmitQueue(Fd event_fd, Fd timer_fd) : event_fd_(std::move(event_fd)), timer_fd_(std::move(timer_fd)) {}
  void set_timer(bool is_on);

  // constant after construction
  Fd event_fd_;
  Fd timer_fd_;
  OpPool pool_;
  // any thread
  std::atomic<bool> has_waiting_ = false;
  std::atomic<bool> is_asleep_ = false;
  std::atomic<bool> is_timer_on_ = false;
  // guarded by mu_
  std::mutex mu_;
  std::vector<OpRef> waiting_;
  // Names of operations, which are forgotten before these go.
  std::unordered_set<OpKey, OpKeyHash, std::equal_to<>, BlockAllocator<OpKey>> names_{
      BlockAllocator<OpKey>(std::make_shared<BlockPool>())};
  std::optional<std::string_view> alone_;  // of enter_alone()
  int alone_set_ = 0;
  std::unordered_set<int> ended_sets_;  // their removal was asked for: nothing may come after that
  bool is_joining_ = false;             // then kJoinName in names_ is the join's
  std::optional<Error> closed_;
};

}  // namespace hvd
