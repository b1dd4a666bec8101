// These functions find out that hvdrun has started this process as one of several ranks although its environment does
// not say so: a program on the way (sudo, env -i) has dropped the rank's variables. Without a warning each such process
// would train alone, and nobody would notice.
//
// An agent keeps an anonymous file open whose name says how many ranks its job has (contract::kRanksMark). It is found
// among the open files of the processes above this one. Containers with processes of their own hide the agent, and so
// do kernels that let nobody look; then nothing is found. Thread: any.
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd {

// Returns the warning for `process`, to whose environment no launcher has added anything; empty: there is nothing to
// warn of. A process that a rank has started after it had joined its job is meant to be alone. `proc` is /proc.
std::string words_for_lost_place(pid_t process, const std::string& proc = "/proc");

}  // namespace hvd
