// RankProcess: one rank on this node: its process and the two pipes of its output. Driven by AgentCore.
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
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/spawn.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class RankProcess {
 public:
  // What a rank reports; AgentCore turns it into frames.
  struct Sink {
    // How many bytes may be taken now; 0 pauses the pipe until resume().
    std::function<std::size_t()> allowance;
    std::function<void(int rank, StreamId, std::string_view bytes)> on_output;
    std::function<void(int rank, StreamId)> on_output_end;
  };

  // `options` without descriptors for output: these are its own.
  static Result<std::unique_ptr<RankProcess>> start(EventLoop& loop, int rank, SpawnOptions options, Sink sink);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool has_exited() const { return exited_.has_value(); }
  [[nodiscard]] bool has_failed() const { return exited_ && !exited_->is_success(); }
  // Exited, and nothing more will come from its pipes.
  [[nodiscard]] bool is_finished() const {
    return has_exited() && !is_open(StreamId::kStdout) && !is_open(StreamId::kStderr);
  }

  // Its process was reaped. What stands in the pipes is read first; a grandchild that holds them open has a short while
  // to end, so that a forgotten background process cannot keep the job from ending.
  void mark_exited(ExitStatus status);
  // Sends to the rank's process group, only while its leader is not reaped: later the number may be a stranger's.
  void signal_group(int signo) const;
  // Reads again, after allowance() was 0.
  void resume();

 private:
  struct OutputPipe {
    Fd fd;
    WatchId watch = 0;
    bool is_paused = false;
  };

  RankProcess(EventLoop& loop, int rank, Sink sink);
  Result<void> watch_pipe(StreamId stream, Fd read_end);
  OutputPipe& pipe_of(StreamId stream) { return pipes_[stream == StreamId::kStdout ? 0 : 1]; }
  [[nodiscard]] bool is_open(StreamId stream) const { return pipes_[stream == StreamId::kStdout ? 0 : 1].fd.is_open(); }
  void on_readable(StreamId stream, std::size_t budget);
  // All that the rank itself has written.
  void read_rest(StreamId stream);
  void close_pipe(StreamId stream);
  void end_drain();

  // constant after construction
  EventLoop& loop_;
  const int rank_;
  const Sink sink_;
  // loop only
  pid_t pid_ = 0;
  std::array<OutputPipe, 2> pipes_;
  std::optional<ExitStatus> exited_;
  TimerId drain_timer_ = 0;
};

}  // namespace hvd::launch
