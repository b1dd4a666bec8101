// What whoever started this process had set for signals, which it inherits. `nohup` ignores SIGHUP so that its program
// outlives the terminal, and a shell without job control ignores SIGINT for programs in the background: ssh and make
// leave such signals ignored, and so does hvdrun. Some daemons leave SIGCHLD ignored, with which no process could be
// told how its children end.
//
// Thread: any, before others start.
#pragma once

#include <vector>

namespace hvd {

// Of `signals`, those that this process does not ignore.
std::vector<int> without_ignored(std::vector<int> signals);

// SIGCHLD as every program expects it. For main().
void restore_child_signal();

}  // namespace hvd
