// A guard for the start of threads of our own in a program that handles signals.
#pragma once

#include <signal.h>

namespace hvd::front {

// WithoutSignals blocks all signals in the calling thread while it lives. A thread that is started meanwhile keeps them
// blocked, so that the program's own threads handle them: one of ours would take Ctrl-C away from Python's main thread.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace hvd::front
