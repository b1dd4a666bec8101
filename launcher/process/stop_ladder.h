// StopLadder ends processes that nobody needs any more: it sends SIGTERM to their groups, and SIGKILL after a patience.
// It also reaps them, so that none is left, neither running nor as a zombie, once it is destroyed.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "runtime/base/fd.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class StopLadder {
 public:
  // `loop` must outlive this object.
  explicit StopLadder(EventLoop& loop) : loop_(loop) {}
  // Waits for all that have not ended, each for what is left of its patience.
  ~StopLadder();
  StopLadder(const StopLadder&) = delete;
  StopLadder& operator=(const StopLadder&) = delete;

  // `pid` is a child that leads its own process group and was not reaped; `pidfd` is its own.
  void end(pid_t pid, Fd pidfd, Duration patience);

 private:
  struct Entry {
    pid_t pid = 0;
    Fd pidfd;
    WatchId watch = 0;
    TimerId timer = 0;
    Deadline deadline{TimePoint{}};
  };
  void reap(std::uint64_t ticket);

  // constant after construction
  EventLoop& loop_;
  // loop only
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace hvd::launch
