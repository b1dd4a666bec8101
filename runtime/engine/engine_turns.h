// EngineTurns decides which thread runs the engine, and how it sleeps: the engine's own thread (the keeper), or a
// user's thread that waits for its result (a driver). See turn_lock.h.
#pragma once

#include <memory>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/core/completion.h"
#include "runtime/engine/engine_core.h"
#include "runtime/engine/turn_lock.h"

namespace hvd {

class EngineTurns {
 public:
  // The core must outlive every other call.
  static Result<std::unique_ptr<EngineTurns>> create(EngineCore& core);

  // The keeper's loop. It returns when this rank has left the job.
  void run();
  // Waits until the Completion is done, or the deadline has passed; runs the engine if no other thread does. Thread:
  // any.
  void wait(const Completion& completion, const std::optional<Deadline>& until);
  // After a submission: wakes the thread that runs the engine, or the keeper. Thread: any.
  void rouse();
  // Does the same for events that only the loop's handlers see. Thread: any.
  void wake();

 private:
  // How the keeper sleeps: until the descriptor is readable or the time has passed.
  struct Rest {
    int fd = -1;
    int timeout_ms = 0;
  };

  EngineTurns(EngineCore& core, std::unique_ptr<TurnLock> lock);
  std::optional<Rest> keep();
  void wait_for_turn();
  [[nodiscard]] bool drive_once(const Completion& completion, const std::optional<Deadline>& until);
  void drive(const Completion& completion, const std::optional<Deadline>& until);
  void let_go();
  Result<void> turn_once();

  // constant after construction
  EngineCore& core_;
  const std::unique_ptr<TurnLock> lock_;
  int spins_;           // how often a driver polls before it yields the core
  int spins_per_turn_;  // how often it asks the kernel for events meanwhile
};

}  // namespace hvd
