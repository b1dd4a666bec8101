// An Errand is work that may block for long (a dead file server, an interpreter, a silent peer). A copy of this process
// does it, so that the agent still hears its launcher. The copy returns its answer as bytes and ends.
//
// Thread: loop only. The process must have no other thread, since the copy goes on in C++ without exec.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/child.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class Errand {
 public:
  // This runs in the copy. It may use the descriptor that it was given, and what it opens itself.
  using Work = std::function<std::string(int fd)>;
  // This gets the bytes, or why there are none: too late (kTimeout), or the copy was ended. Called once, from the loop.
  using Done = std::function<void(Result<std::string>)>;

  // `fd` is closed here as soon as the copy has it; it need not be open.
  static Result<std::unique_ptr<Errand>> start(EventLoop& loop, Duration patience, Fd fd, const Work& work, Done done);
  // Ends the copy if it still runs.
  ~Errand();
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

 private:
  Errand(EventLoop& loop, Done done) : loop_(loop), done_(std::move(done)) {}
  [[nodiscard]] Child::Handlers handlers();
  void end(Result<std::string> outcome);

  EventLoop& loop_;
  Done done_;
  std::string bytes_;
  std::unique_ptr<Child> copy_;  // while its answer is waited for
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
