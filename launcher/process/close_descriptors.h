// Closes descriptors by close_range(2), in a process that has just been forked: it only makes the system call, which is
// allowed there. libc's function of that name is younger (glibc 2.34) than the systems that a wheel serves.
#pragma once

#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hvd::launch {

// `flags`: 0, or CLOSE_RANGE_CLOEXEC to close them at the next exec. A kernel older than 5.9 lacks it, and does
// nothing.
inline void close_descriptors(unsigned first, unsigned last, unsigned flags) {
  ::syscall(SYS_close_range, first, last, flags);
}

}  // namespace hvd::launch
