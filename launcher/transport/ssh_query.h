// SshQuery: runs `ssh -G HOST` through the event loop, without ever blocking it.
//
// Thread: loop only. Destroying it ends the process and reports nothing.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class SshQuery {
 public:
  struct Answer {
    bool has_program = true;  // false: there is no ssh on this machine
    int exit_code = 0;
    std::string output;
    std::string errors;
  };
  using Done = std::function<void(Result<Answer>)>;

  SshQuery(EventLoop& loop, Done done);
  ~SshQuery();
  SshQuery(const SshQuery&) = delete;
  SshQuery& operator=(const SshQuery&) = delete;

  // `done` is called once, from the loop, and may destroy this object. An error here means that nothing was started.
  Result<void> start(const std::vector<std::string>& argv);

 private:
  struct Output {
    Fd fd;
    WatchId watch = 0;
    std::string text;
  };
  Result<void> spawn(const std::vector<std::string>& argv, int out_fd, int err_fd);
  Result<void> watch(Output& output);
  void on_readable(Output& output);
  void close(Output& output);
  void finish_when_over();

  // constant after construction
  EventLoop& loop_;
  // loop only
  Done done_;
  Output out_;
  Output err_;
  pid_t pid_ = -1;
  Fd pidfd_;
  WatchId pid_watch_ = 0;
  Answer answer_;
};

}  // namespace hvd::launch
