// LeaderWire runs allreduces between nodes on a thread of its own, so that a leader's links are busy while the engine
// works within its node.
//
// The thread is started at the first order and sleeps while there is none. It does one order at a time, in the order in
// which they came. Thread: engine only, except what run() does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/algo/leader_collectives.h"
#include "runtime/core/stage_sink.h"

namespace hvd {

class LeaderWire {
 public:
  // It does not own the collectives. They outlive it, and only it may use them between an order and the end of its
  // wait.
  explicit LeaderWire(LeaderCollectives& leaders) : leaders_(leaders) {}
  ~LeaderWire();
  LeaderWire(const LeaderWire&) = delete;
  LeaderWire& operator=(const LeaderWire&) = delete;

  // Called before the first order; null: nobody.
  void trace_to(StageSink* sink) { sink_ = sink; }
  // Queues an order. The memory must stay in place until wait() has returned for it, or stop(). After a failure nothing
  // more is begun, and wait() returns the error.
  void order(Piece piece, Dtype dtype, ReduceOp op, Scale after);
  // Waits until the oldest order is done that was not waited for. An error is that of the link, or the Interrupt's.
  Result<void> wait(Interrupt& interrupt);
  // Begins no further order, and returns when none is running; used after an error.
  void stop();

 private:
  struct Order {
    Piece piece;
    Dtype dtype;
    ReduceOp op;
    Scale after;
  };
  // Stopping is the Interrupt of the thread while it waits for a peer; the engine's own is not safe for two threads.
  class Stopping final : public Interrupt {
   public:
    explicit Stopping(LeaderWire& wire) : wire_(wire) {}
    Result<void> check() override;
    void note_sleep() override { wire_.sleeps_.fetch_add(1, std::memory_order_relaxed); }

   private:
    LeaderWire& wire_;
  };

  void run();
  Result<void> wait_for_order(Interrupt& interrupt);

  LeaderCollectives& leaders_;
  StageSink* sink_ = nullptr;  // constant once the thread runs
  std::thread thread_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> sleeps_{0};  // of the thread; not reported yet
  std::mutex mu_;
  std::condition_variable ordered_;
  std::condition_variable done_;
  // guarded by mu_
  std::vector<Order> orders_;  // few, so that the memory is reused; the first one is running
  int done_count_ = 0;         // done, and not waited for
  Result<void> failed_;        // error of the first order that failed; none is begun after it
};

}  // namespace hvd
