// DeathOrder tells in which order children of this process have ended. waitpid(-1) gives them in the order in which
// they were started, so that of several that end together a consequence could be told before its cause.
//
// The kernel appends the descriptor of a process that ends to an epoll's list of what is ready, and epoll_wait(2) gives
// that list from its beginning. Where it has no such descriptors (before Linux 5.3), no order is told.
//
// Thread: one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <vector>

#include "launcher/process/exit_status.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

class DeathOrder {
 public:
  // The child must not have been reaped. Its descriptor stays open until take() has told its end, or forget().
  void watch(pid_t pid);
  // Returns those that have ended since the last call and are not reaped, the first one first.
  std::vector<pid_t> take();
  void forget(pid_t pid);
  // Reaps all children that have ended, those that are watched in the order of their ends, and calls `tell` for each.
  void reap(const std::function<void(pid_t pid, const ExitStatus& status)>& tell);

 private:
  Fd epoll_;
  std::map<pid_t, Fd> watched_;
};

}  // namespace hvd::launch
