// RelayedCommand: a command on this node that carries bytes to another node, whose agent the launcher speaks with
// through it: `ssh node7`. Its standard streams go to the launcher and come from there; what they say is not looked at.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/process/exit_status.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class RelayedCommand {
 public:
  struct Sink {
    std::function<void(StreamId, std::string_view bytes)> on_output;
    // Nothing more comes of it; it has ended so, or (nothing) lives on without its output.
    std::function<void(const std::optional<ExitStatus>& status, const std::string& how)> on_over;
  };

  static Result<std::unique_ptr<RelayedCommand>> start(EventLoop& loop, const std::vector<std::string>& argv,
                                                       const std::vector<std::string>& environment, Sink sink);
  ~RelayedCommand();
  RelayedCommand(const RelayedCommand&) = delete;
  RelayedCommand& operator=(const RelayedCommand&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool has_exited() const { return exited_.has_value(); }
  // on_over was called, or is never going to be.
  [[nodiscard]] bool is_over() const { return is_over_; }
  void write(std::string_view bytes);
  // This program's own executable, for a node that lacks it.
  void write_image();
  // Flushes what is queued, then ends its input.
  void close_input();
  // So many bytes more may be read of it.
  void grant(std::uint32_t bytes);
  // It is not needed any more: nothing comes of it, and it gets SIGTERM, and after `patience` SIGKILL.
  void end(Duration patience);
  // Its process was reaped.
  void mark_exited(const ExitStatus& status);

 private:
  struct OutputPipe {
    Fd fd;
    WatchId watch = 0;
    bool is_paused = false;
  };

  RelayedCommand(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)) {}
  Result<void> watch_pipe(StreamId stream);
  OutputPipe& pipe_of(StreamId stream) { return pipes_[stream == StreamId::kStdout ? 0 : 1]; }
  void on_readable(StreamId stream);
  void close_pipe(StreamId stream);
  void flush();
  bool refill();
  void drop_input();
  void tell_if_over();
  void tell_over(const std::string& how);

  // constant after construction
  EventLoop& loop_;
  const Sink sink_;
  // loop only
  pid_t pid_ = 0;
  std::optional<ExitStatus> exited_;
  std::array<OutputPipe, 2> pipes_;
  std::uint64_t credit_ = kRelayWindow;
  Fd in_;
  WatchId in_watch_ = 0;
  std::string queue_;
  std::size_t sent_ = 0;  // of the queue
  Fd image_;              // what is to follow the queue
  bool wants_end_of_input_ = false;
  bool is_over_ = false;
  TimerId over_timer_ = 0;
  TimerId kill_timer_ = 0;
};

}  // namespace hvd::launch
