// SshQuery runs `ssh -G HOST` through the event loop, without ever blocking it.
//
// Thread: loop only. Destroying it ends the process and reports nothing.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/child.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

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

  SshQuery(EventLoop& loop, Done done) : loop_(loop), done_(std::move(done)), scope_(loop) {}
  SshQuery(const SshQuery&) = delete;
  SshQuery& operator=(const SshQuery&) = delete;

  // `environment` is the environment of ssh. `done` is called once, from the loop, and may destroy this object. An
  // error here means that nothing was started.
  Result<void> start(const std::vector<std::string>& argv, const std::vector<std::string>& environment);

 private:
  void on_output(Child::Stream stream, std::string_view text);
  void finish(const std::optional<ExitStatus>& status);

  // constant after construction
  EventLoop& loop_;
  // loop only
  Done done_;
  std::array<std::string, 2> texts_;  // by Child::Stream
  std::unique_ptr<Child> child_;
  Scope scope_;
};

}  // namespace hvd::launch
