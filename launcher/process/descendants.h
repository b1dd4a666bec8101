// These functions make sure that nothing a process started stays behind, even if it left the process group.
//
// They work because the caller is a child subreaper (prctl(2)): whatever it started, at any depth, becomes its own
// child when the parents between them end. A child's number cannot be reused before the caller has reaped it, so
// killing the listed children is free of races. Their children appear in the next listing.
#pragma once

#include <sys/types.h>

#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// From now on, orphaned descendants become children of this process.
Result<void> become_subreaper();

// Says whether this process has started that one, at any depth. It is also true for one that has just ended.
bool is_descendant(pid_t pid);

// Returns the direct children of this process, zombies included.
std::vector<pid_t> children_of_self();

// The first argument of the program that serves a job of the service (launcher/service), from its submission to its
// end.
inline constexpr const char* kSuperviseWord = "supervise";
// Returns the same without those that serve another job, which a rank has submitted, and which outlives the rank's job.
std::vector<pid_t> children_of_job();

// Sends `signo` to every direct child in `children`. Numbers <= 0 are never signalled: kill(2) takes those for groups
// or everything.
void signal_children(const std::vector<pid_t>& children, int signo);

}  // namespace hvd::launch
