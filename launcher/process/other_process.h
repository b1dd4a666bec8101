// These functions look at another process: when it began, when it ends. Thread: any.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Returns a descriptor that is readable once the process has ended, also while nobody has reaped it. That is a pidfd
// where the kernel knows them. Before Linux 5.3 (RHEL 8), and where a container forbids the call, a thread of ours
// waits for the end, and the descriptor is an eventfd.
Result<Fd> open_process(pid_t pid);

// Returns a pidfd, or nothing where the kernel has none.
Fd open_pidfd(pid_t pid);

// Does what open_process() does without the kernel's pidfds.
Result<Fd> open_process_by_thread(pid_t pid);

// Signals the process that open_process() has opened. A pidfd cannot come to mean another process; with an eventfd, the
// number could. Errors are ignored: the process may just have ended.
void signal_process(const Fd& process, pid_t pid, int signo);

// Returns when the process began, in clock ticks since the machine's start; with the number it names one process. 0:
// there is no such process.
std::int64_t start_of_process(int pid);

// Says whether the process ignores the signal, as a shell's background programs ignore SIGINT. False as well where the
// kernel does not tell.
bool ignores_signal(pid_t pid, int signo);

}  // namespace hvd::launch
