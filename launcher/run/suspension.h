// Suspension: what Ctrl-Z (SIGTSTP) means to a job: all its ranks are stopped, on whatever host, then hvdrun itself;
// and all go on when it is continued (`fg`, `bg`, SIGCONT). Else the ranks would run on unseen, and agents on other
// hosts would take hvdrun for dead after a while.
//
// Thread: loop only.
#pragma once

#include <functional>

#include "runtime/base/event_loop.h"

namespace hvd::launch {

class Suspension {
 public:
  struct Sink {
    // Tells the agents to stop their ranks; how many of them will answer.
    std::function<int()> suspend;
    // Tells them to let their ranks go on, after all was stopped for so long.
    std::function<void(Duration stopped)> let_continue;
    // The terminal is the shell's until let_continue().
    std::function<void()> leave_terminal;
  };

  Suspension(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)) {}

  // SIGTSTP, which is blocked. Stops the process once all agents have answered, or do not in a while.
  void begin();
  void on_suspended();

 private:
  void stop();

  EventLoop& loop_;
  const Sink sink_;
  bool is_under_way_ = false;
  int missing_ = 0;  // agents that are still to answer
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
