// Wheel: who turns the engine. One thread at a time holds it and with it all that is "engine only": the engine's own
// thread (the keeper), or a user's thread that waits for a result (a driver) and so needs no other thread to wake up,
// which costs more than a small collective does.
//
// The keeper is there for what nobody waits for: asynchronous operations, the end of the job. While drivers come and
// go it only dozes: it looks again after a while, and is woken by a driver that leaves work behind. So a loop of
// synchronous calls wakes it once per doze, not once per call.
// Thread: any; after take() or a true try_take() the caller holds it, and only then may use the rest.
#pragma once

#include <cstdint>
#include <mutex>

namespace hvd {

class Wheel {
 public:
  // Driver. False: someone else turns, and will bring the driver's result too.
  [[nodiscard]] bool try_take() {
    if (!mu_.try_lock()) {
      return false;
    }
    ++drives_;
    return true;
  }
  // Keeper. Waits while a driver has it.
  enum class Took { kAtOnce, kAfterOthers };
  Took take() {
    if (mu_.try_lock()) {
      return Took::kAtOnce;
    }
    mu_.lock();
    return Took::kAfterOthers;
  }
  void release() { mu_.unlock(); }

  // Keeper: whether a driver was here since the last call.
  bool was_driven() {
    const bool was = drives_ != seen_;
    seen_ = drives_;
    return was;
  }
  // Whether the keeper sleeps until it is woken, rather than dozes. Told by the keeper alone, before it sleeps and when
  // it is awake again; every driver that leaves in between has to wake it, so that someone is there after the last one.
  void set_deep(bool is_deep) { is_deep_ = is_deep; }
  [[nodiscard]] bool is_deep() const { return is_deep_; }

 private:
  std::mutex mu_;
  // guarded by mu_
  std::uint64_t drives_ = 0;
  std::uint64_t seen_ = 0;
  bool is_deep_ = false;
};

}  // namespace hvd
