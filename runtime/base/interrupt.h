// Interrupt: how a wait learns that the job is over: inside a collective, or while ranks meet.
#pragma once

#include "runtime/base/result.h"

namespace hvd {

class Interrupt {
 public:
  virtual ~Interrupt() = default;
  // OK while the job is alive, else why it is not (kLostPeer, kCancelled). Does not block. Every wait in link, algo and
  // backend asks at least each 100 ms, and gives up with that error. Thread: engine only.
  virtual Result<void> check() = 0;
  // The thread is about to wait in the kernel until something wakes it. Told so that no wake-up goes uncounted.
  virtual void note_sleep() {}

 protected:
  Interrupt() = default;
  Interrupt(const Interrupt&) = default;
  Interrupt& operator=(const Interrupt&) = default;
};

// Where there is no engine to ask: none yet, or none any more.
class NoInterrupt final : public Interrupt {
 public:
  Result<void> check() override { return {}; }
};

}  // namespace hvd
