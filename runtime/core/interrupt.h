// Interrupt: how a wait inside a collective learns that the job is over.
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

}  // namespace hvd
