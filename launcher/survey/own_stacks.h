// own_stacks() reads the stacks of one process and of what it has started, as an errand of the agent. It is the one
// place that knows the reader, py-spy: another one is another body of this function.
//
// The kernel lets a process read another one of the same user unless Yama's ptrace_scope is 1 or more. With 1 only
// ancestors may; so a rank allows its agent before it starts (SpawnOptions::is_readable_by_parent).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/wire/stack_messages.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// `environment` is the agent's own. The answer always says what the kernel knows of the process.
RankStacks own_stacks(pid_t pid, bool is_native, const std::vector<std::string>& environment, Deadline deadline);

// Returns the path of the reader that is found for a Python of this path in this environment; empty: there is none.
std::string find_stack_reader(const std::string& python, const std::vector<std::string>& environment);

// Returns what the kernel says of a process: "sleeping in futex_wait, system call 202"; empty: there is none.
std::string kernel_view(pid_t pid);

}  // namespace hvd::launch
