// LeaderWire: allreduces between nodes on a thread of its own, so that a leader's links are busy while the engine works
// within its node.
//
// The thread is started at the first order and sleeps without one. One order at a time is done, in the order in which
// they came. Thread: engine only, but for what run() does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/algo/leader_collectives.h"

namespace hvd {

class LeaderWire {
 public:
  // Does not own the collectives: they outlive it, and are the wire's alone between an order and the end of its wait.
  explicit LeaderWire(LeaderCollectives& leaders) : leaders_(leaders) {}
  ~LeaderWire();
  LeaderWire(const LeaderWire&) = delete;
  LeaderWire& operator=(const LeaderWire&) = delete;

  // The memory stays where it is until wait() has returned for it, or stop(). After a failure nothing is begun any
  // more, and wait() gives the error.
  void order(Piece piece, Dtype dtype, ReduceOp op, Scale after);
  // Until the oldest order that was not waited for is done. An error is that of the link, or the Interrupt's.
  Result<void> wait(Interrupt& interrupt);
  // No order is begun any more, and none is under way when it returns. For after an error.
  void stop();

 private:
  struct Order {
    Piece piece;
    Dtype dtype;
    ReduceOp op;
    Scale after;
  };
  // What the thread asks while it waits for a peer: the engine's own Interrupt is not for two threads.
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
  std::thread thread_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> sleeps_{0};  // of the thread, that were not told
  std::mutex mu_;
  std::condition_variable ordered_;
  std::condition_variable done_;
  // guarded by mu_
  std::vector<Order> orders_;  // few, for which no memory is asked again and again; the first is under way
  int done_count_ = 0;         // done, and not waited for
  Result<void> failed_;        // of the first that failed; none after it is begun
};

}  // namespace hvd
