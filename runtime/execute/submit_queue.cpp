#include "runtime/execute/submit_queue.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace hvd {
namespace {

constexpr long kLaterNs = 5'000'000;

}  // namespace

Result<std::unique_ptr<SubmitQueue>> SubmitQueue::create(Activity& activity) {
  Fd event_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_fd.is_open()) {
    return Error::from_errno("eventfd");
  }
  Fd timer_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_fd.is_open()) {
    return Error::from_errno("timerfd_create");
  }
  return std::unique_ptr<SubmitQueue>(new SubmitQueue(activity, std::move(event_fd), std::move(timer_fd)));
}

Result<void> SubmitQueue::push(std::span<OpRef> ops) {
  const std::lock_guard lock(mu_);
  if (closed_) {
    return *closed_;
  }
  if (is_joining_) {
    return Error(Code::kInvalid, "this rank has joined and waits for the others; '" + ops.front()->what.name +
                                     "' can be started when the join has ended");
  }
  const int process_set = ops.front()->what.process_set;
  if (ended_sets_.contains(process_set)) {
    return Error(Code::kNotFound, "process set " + std::to_string(process_set) + " is being removed, or has been");
  }
  for (auto op = ops.begin(); op != ops.end(); ++op) {
    const std::string& name = (*op)->what.name;
    const bool is_done_alone = alone_ != nullptr && alone_->name == name && alone_set_ == process_set;
    const Asked asked{(*op)->what.kind, (*op)->asked_at};
    if (is_done_alone || !names_.emplace(OpKey{process_set, name}, asked).second) {
      std::for_each(ops.begin(), op, [&](const OpRef& before) { drop_name(OpKey{process_set, before->what.name}); });
      return Error(Code::kInvalid, "Requested to allreduce, allgather, or broadcast a tensor with the same name as " +
                                       std::string("another tensor that is currently being processed: '") + name +
                                       "'; wait for the first one, or give it another name");
    }
  }
  is_joining_ = ops.front()->what.kind == OpKind::kJoin;
  if (ops.front()->what.kind == OpKind::kSetRemove) {
    ended_sets_.insert(ops.front()->what.numbers.front());
  }
  std::move(ops.begin(), ops.end(), std::back_inserter(waiting_));
  // This is sequentially consistent, as in sleep() and rouse(): either the engine that wants to sleep sees this, or the
  // pushing thread sees that it sleeps.
  has_waiting_.store(true);
  return {};
}

bool SubmitQueue::enter_alone(int process_set, const QuickOp& op) {
  const std::lock_guard lock(mu_);
  if (closed_ || alone_ != nullptr || !names_.empty() || ended_sets_.contains(process_set)) {
    return false;
  }
  alone_ = &op;
  alone_set_ = process_set;
  return true;
}

void SubmitQueue::leave_alone() {
  const std::lock_guard lock(mu_);
  alone_ = nullptr;
  if (std::exchange(is_alone_shown_, false)) {
    activity_.clear();
  }
}

// The timer is needed only while the engine sleeps. Otherwise the engine is awake or dozes, and looks soon enough by
// itself.
void SubmitQueue::rouse_later() {
  if (is_asleep_.load()) {
    set_timer(true);
  }
}

void SubmitQueue::set_timer(bool is_on) {
  is_timer_on_.store(is_on);
  const itimerspec when{.it_interval = {0, 0}, .it_value = {0, is_on ? kLaterNs : 0}};
  ::timerfd_settime(timer_fd_.get(), 0, &when, nullptr);
}

bool SubmitQueue::sleep() {
  is_asleep_.store(true);
  return !has_waiting_.load();
}

void SubmitQueue::take(std::vector<OpRef>& into) {
  if (is_timer_on_.load()) {
    set_timer(false);
  }
  const std::lock_guard lock(mu_);
  has_waiting_.store(false, std::memory_order_relaxed);
  waiting_.swap(into);
}

void SubmitQueue::forget(const OpKey& key) {
  const std::lock_guard lock(mu_);
  is_joining_ = is_joining_ && key != OpKey{0, kJoinName};
  drop_name(key);
}

// mu_ is held.
void SubmitQueue::drop_name(const OpKey& key) {
  const auto found = names_.find(key);
  if (found == names_.end()) {
    return;
  }
  if (&found->first == shown_) {
    shown_ = nullptr;
    activity_.clear();
  }
  names_.erase(found);
}

void SubmitQueue::show_oldest() {
  const std::lock_guard lock(mu_);
  if (shown_ != nullptr || is_alone_shown_) {
    return;
  }
  if (alone_ != nullptr) {
    is_alone_shown_ = true;
    // When it began was not noted, since most take no time; it cannot have been long ago.
    if (alone_->name.empty()) {
      activity_.show(alone_->kind, noname_of(alone_->kind, alone_->noname), ticks_now());
    } else {
      activity_.show(alone_->kind, alone_->name, ticks_now());  // without a copy: a rank may sleep in each operation
    }
    return;
  }
  if (names_.empty()) {
    return;
  }
  const auto oldest = std::min_element(names_.begin(), names_.end(),
                                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; });
  shown_ = &oldest->first;
  activity_.show(oldest->second.kind, oldest->first.name, oldest->second.at);
}

void SubmitQueue::reopen_set(int process_set) {
  const std::lock_guard lock(mu_);
  ended_sets_.erase(process_set);
}

std::vector<OpRef> SubmitQueue::close(Error why) {
  const std::lock_guard lock(mu_);
  closed_ = std::move(why);
  return std::exchange(waiting_, {});
}

void SubmitQueue::quiet() {
  std::uint64_t count = 0;
  [[maybe_unused]] auto got = ::read(event_fd_.get(), &count, sizeof count);
  got = ::read(timer_fd_.get(), &count, sizeof count);
}

void SubmitQueue::wake() {
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, so the engine is awake already.
  [[maybe_unused]] const auto written = ::write(event_fd_.get(), &one, sizeof one);
}

}  // namespace hvd
