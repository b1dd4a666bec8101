// RelayedCommand is a command on this node that carries bytes to another node, such as `ssh node7`: through it the
// launcher speaks with that node's agent. Its standard streams go to the launcher and come from there unread. It is a
// Child (process/child.h) that is read against credit; the agent reaps it.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/child.h"
#include "launcher/wire/messages.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class RelayedCommand {
 public:
  struct Sink {
    std::function<void(Child::Stream, std::string_view bytes)> on_output;
    // Nothing more comes: it has ended with `status`, or lives on without its output (no status).
    std::function<void(const std::optional<ExitStatus>& status, const std::string& how)> on_over;
  };

  static Result<std::unique_ptr<RelayedCommand>> start(EventLoop& loop, const std::vector<std::string>& argv,
                                                       const std::vector<std::string>& environment, Sink sink);

  [[nodiscard]] pid_t pid() const { return child_->pid(); }
  [[nodiscard]] bool has_exited() const { return child_->has_exited(); }
  // Says that on_over was called, or never will be.
  [[nodiscard]] bool is_over() const { return child_->is_over(); }
  void write(std::string_view bytes) { child_->write(std::string(bytes)); }
  // Sends without a copy: `image` must exist until it is taken.
  void push(std::string_view image) { child_->push(image); }
  // Flushes what is queued, then ends its input.
  void close_input() { child_->close_input(); }
  // Allows so many more bytes to be read of it.
  void grant(std::uint32_t bytes);
  // It is not needed any more: nothing is reported, and it gets SIGTERM, and SIGKILL after `patience`.
  void end(Duration patience) { child_->end(patience); }
  // Its process was reaped.
  void mark_exited(const ExitStatus& status) { child_->mark_exited(status); }

 private:
  RelayedCommand() = default;

  std::uint64_t credit_ = kRelayWindow;
  std::unique_ptr<Child> child_;
};

}  // namespace hvd::launch
