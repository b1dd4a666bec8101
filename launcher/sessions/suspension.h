// Suspension carries out Ctrl-Z (SIGTSTP) for a whole job. It stops the ranks on every host, then hvdrun itself; all go
// on when hvdrun is continued (`fg`, `bg`, SIGCONT). Otherwise the ranks would run on unseen, and after a while the
// agents on other hosts would take the stopped hvdrun for dead.
//
// Thread: loop only.
#pragma once

#include <functional>

#include "runtime/io/event_loop.h"

namespace hvd::launch {

// Stops this process, as SIGTSTP does where nobody handles it, and returns when it is continued. The timers of the loop
// do not run meanwhile. Where no shell could continue this process it returns at once. SIGTSTP is blocked.
void stop_self(EventLoop& loop);

class Suspension {
 public:
  struct Sink {
    // Asks the agents to stop their ranks, and returns how many of them will answer.
    std::function<int()> suspend;
    // Asks the agents to let their ranks go on.
    std::function<void()> let_continue;
    // Stops drawing on the terminal, which is the shell's until let_continue().
    std::function<void()> leave_terminal;
  };

  Suspension(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)) {}

  // Handles SIGTSTP, which is blocked. Stops this process once all agents have answered, or have not done so for a
  // while.
  void begin();
  void on_suspended();

 private:
  void stop();

  EventLoop& loop_;
  const Sink sink_;
  bool is_under_way_ = false;
  int missing_ = 0;  // agents that have not answered yet
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
