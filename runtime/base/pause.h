// What a loop does that waits for another core to write, before it sleeps.
#pragma once

#include <sched.h>

#include <chrono>

namespace hvd {

// The processor's hint that a loop only waits.
inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Gives the core to others who could run, which other ranks of the job may be. False: it was away for longer than any
// of them takes, so that programs we know nothing of share it; these have it for a whole time slice at each such call,
// while a thread that sleeps is run soon after it is woken. Then the caller should sleep.
inline bool give_way() {
  constexpr auto kLong = std::chrono::microseconds(500);
  const auto before = std::chrono::steady_clock::now();
  ::sched_yield();
  return std::chrono::steady_clock::now() - before < kLong;
}

}  // namespace hvd
