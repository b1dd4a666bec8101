// start_thread() starts a thread of ours in a host program's process.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

#include <pthread.h>

namespace hvd {

// The thread takes none of the host's signals (Python's Ctrl-C belongs to the host's threads). `name` has up to 15
// characters, as top(1) shows it.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  // BlockedSignals gives the caller its signals back also where no thread can be started, and std::thread throws.
  struct BlockedSignals {
    BlockedSignals() {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;
    ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before{};
  };
  const BlockedSignals blocked;
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace hvd
