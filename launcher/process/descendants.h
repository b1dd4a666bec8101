// Descendants: making sure that nothing a process started stays behind, also what left its process group.
//
// It works because the caller is a child subreaper (prctl(2)): whatever it started, at any depth, becomes its own child
// when the parents between them end. A child's number cannot be reused before the caller has reaped it, so killing the
// listed children is free of races; their children appear in the next listing.
#pragma once

#include <sys/types.h>

#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// Orphaned descendants come to this process from now on.
Result<void> become_subreaper();

// Whether this process has started that one, at any depth; also true for one that has just ended.
bool is_descendant(pid_t pid);

// The direct children of this process, zombies included.
std::vector<pid_t> children_of_self();

// Sends `signo` to every direct child in `children`. Numbers <= 0 are never signalled: kill(2) takes those for groups
// or everything.
void signal_children(const std::vector<pid_t>& children, int signo);

}  // namespace hvd::launch
