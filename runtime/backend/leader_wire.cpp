#include "runtime/backend/leader_wire.h"

#include <chrono>

#include "runtime/base/thread.h"

namespace hvd {
namespace {

constexpr auto kInterruptEvery = std::chrono::milliseconds(100);

}  // namespace

Result<void> LeaderWire::Stopping::check() {
  return wire_.stopped_.load() ? Result<void>(Error(Code::kCancelled, "the operation was given up")) : Result<void>();
}

LeaderWire::~LeaderWire() {
  if (thread_.joinable()) {
    stop();
    thread_.join();
  }
}

void LeaderWire::order(Piece piece, Dtype dtype, ReduceOp op, Scale after) {
  if (!thread_.joinable()) {
    thread_ = start_thread("hvd-wire", [this] { run(); });
  }
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!failed_.ok()) {
      return;  // the thread may have ended, and stop() waits until there is no order
    }
    orders_.push_back(Order{piece, dtype, op, after});
  }
  ordered_.notify_one();
}

Result<void> LeaderWire::wait(Interrupt& interrupt) {
  auto waited = wait_for_order(interrupt);
  for (auto sleeps = sleeps_.exchange(0, std::memory_order_relaxed); sleeps > 0; --sleeps) {
    interrupt.note_sleep();
  }
  return waited;
}

Result<void> LeaderWire::wait_for_order(Interrupt& interrupt) {
  std::unique_lock<std::mutex> lock(mu_);
  while (done_count_ == 0 && failed_.ok()) {
    interrupt.note_sleep();
    if (done_.wait_for(lock, kInterruptEvery) == std::cv_status::timeout) {
      lock.unlock();
      HVD_TRY(interrupt.check());
      lock.lock();
    }
  }
  if (!failed_.ok()) {
    // A connection often breaks because the job ends; then report the job's cause instead of the connection.
    HVD_TRY(interrupt.check());
    return failed_;
  }
  --done_count_;
  return {};
}

void LeaderWire::stop() {
  std::unique_lock<std::mutex> lock(mu_);
  stopped_.store(true);
  if (failed_.ok()) {
    failed_ = Error(Code::kCancelled, "an operation between nodes was given up");
  }
  ordered_.notify_one();
  done_.wait(lock, [this] { return orders_.empty(); });
}

void LeaderWire::run() {
  Stopping interrupt(*this);
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    while (orders_.empty() && !stopped_.load()) {
      interrupt.note_sleep();
      ordered_.wait(lock);
    }
    if (stopped_.load() || !failed_.ok()) {
      orders_.clear();
      done_.notify_all();
      if (stopped_.load()) {
        return;
      }
      continue;
    }
    const Order order = orders_.front();
    lock.unlock();
    auto moved = [&] {
      const StageSpan span(sink_, Stage::kWire, order.piece.size_bytes);
      return leaders_.allreduce(std::span(&order.piece, 1), order.dtype, order.op, order.after, interrupt);
    }();
    lock.lock();
    orders_.erase(orders_.begin());
    if (moved.ok()) {
      ++done_count_;
    } else if (failed_.ok()) {
      failed_ = std::move(moved);
    }
    lock.unlock();  // otherwise the woken thread would have to wait for the lock
    done_.notify_all();
    lock.lock();
  }
}

}  // namespace hvd
