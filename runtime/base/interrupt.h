// Interrupt is how a wait learns that the job is over, inside a collective or while ranks connect. Without it, a rank
// whose peer has died would wait forever.
#pragma once

#include "runtime/base/result.h"

namespace hvd {

class Interrupt {
 public:
  virtual ~Interrupt() = default;
  // Returns OK while the job is alive, otherwise the reason for its end (kLostPeer, kCancelled). It does not block.
  // Every wait in link, algo and backend calls it at least each 100 ms, and gives up with that error. Thread: engine
  // only.
  virtual Result<void> check() = 0;
  // Called before the thread waits in the kernel until something wakes it, so that every wake-up is counted.
  virtual void note_sleep() {}

 protected:
  Interrupt() = default;
  Interrupt(const Interrupt&) = default;
  Interrupt& operator=(const Interrupt&) = default;
};

// NoInterrupt serves where there is no engine: none yet, or none any more.
class NoInterrupt final : public Interrupt {
 public:
  Result<void> check() override { return {}; }
};

}  // namespace hvd
