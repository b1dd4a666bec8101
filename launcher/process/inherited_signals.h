// The signal settings that this process inherited from its parent. `nohup` ignores SIGHUP so that its program outlives
// the terminal, and a shell without job control ignores SIGINT for programs in the background. ssh and make leave such
// signals ignored, and so does hvdrun. Some daemons leave SIGCHLD ignored, and then a process cannot learn how its
// children end.
//
// Thread: any, before others start.
#pragma once

#include <vector>

namespace hvd {

// Returns those of `signals` that this process does not ignore.
std::vector<int> without_ignored(std::vector<int> signals);

// Restores the default handling of SIGCHLD, which every program expects. For main().
void restore_child_signal();

}  // namespace hvd
