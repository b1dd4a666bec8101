// The machine that this runs on: the id of its boot, its processor's name, and what a loop does that waits for another
// core to write, before it gives up and sleeps.
#pragma once

#include <sched.h>

#include <chrono>
#include <string>

namespace hvd {

// Returns the kernel's name ("Intel(R) Xeon(R) ..."; for Arm its implementer and part); "unknown" if it gives none.
// A tuning table contains it, so that measurements of another processor are recognised.
std::string processor_name();

// Returns what no other machine has, and this one only until it starts anew; empty if the kernel does not tell it.
std::string boot_id();

// The processor's hint that this loop only waits.
inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Yields the core to other threads that could run, such as other ranks of the job. It returns false if that took longer
// than any rank would: then other programs share the core. They get a whole time slice at each such call, while a
// sleeping thread runs soon after it is woken. So the caller should then sleep.
inline bool give_way() {
  constexpr auto kLong = std::chrono::microseconds(500);
  const auto before = std::chrono::steady_clock::now();
  ::sched_yield();
  return std::chrono::steady_clock::now() - before < kLong;
}

}  // namespace hvd
