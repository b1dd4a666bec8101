// Child is a process that this one has started, with up to three pipes on the event loop. It is the one way to run a
// program (spawn.h) or a copy of this process beside the loop, so these rules hold for all of them:
//  - All output of a process is read before its end is reported. Processes that it left behind may hold its pipes for a
//    while.
//  - A pipe is read only as far as its reader allows, and bytes that wait for the reader are never dropped.
//  - A signal is sent only until the process is reaped, because its number may belong to another process later.
//
// Thread: loop only. Any handler may destroy the Child. Its destructor sends a process that still runs the signal that
// it would get at the end of this process (SpawnOptions::death_signal), and reaps it; leave_to() lets it end in its own
// time.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/process/exit_status.h"
#include "launcher/process/pipe_reader.h"
#include "launcher/process/pipe_writer.h"
#include "launcher/process/spawn.h"
#include "launcher/process/stop_ladder.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class Child {
 public:
  enum class Stream : std::uint8_t { kOutput = 0, kErrors = 1 };

  // Options say which pipes the process gets, and how long its end may take.
  struct Options {
    bool has_input = false;
    bool has_output = true;
    bool has_errors = true;
    bool joins_errors = false;  // standard error goes into the same pipe as standard output
    // The owner reaps all children of this process, and reports the end of this one by mark_exited().
    bool is_reaped_elsewhere = false;
    // Other processes may hold a pipe for this long after the process has ended.
    Duration output_drain = std::chrono::seconds(1);
    Duration errors_drain = std::chrono::seconds(1);
    // It is also over when it has run for this long after its output ended. Unset: it is waited for.
    std::optional<Duration> end_time;
  };

  // Only on_output must be set.
  struct Handlers {
    std::function<std::size_t()> allowance;  // how many bytes may come now; 0: nothing is read until resume()
    std::function<void(Stream, std::string_view)> on_output;
    std::function<void(Stream)> on_output_end;
    std::function<void()> on_taken;  // it took bytes of its input, later than they were written
    // Nothing more comes; `how` it ended, in words. Without a status it lives on. Nothing is called after this.
    std::function<void(const std::optional<ExitStatus>& status, const std::string& how)> on_over;
  };

  // Starts `program`, which must name no descriptor where it gets a pipe. Errors are those of spawn(). The loop must
  // outlive the Child.
  static Result<std::unique_ptr<Child>> start(EventLoop& loop, SpawnOptions program, const Options& options,
                                              Handlers handlers);
  // Takes over a copy of this process, made by fork(2), that writes to the other end of `output`. The owner reaps it.
  static Result<std::unique_ptr<Child>> adopt(EventLoop& loop, pid_t pid, Fd output, Handlers handlers);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool has_exited() const { return has_exited_; }
  // Known once it is reaped.
  [[nodiscard]] const std::optional<ExitStatus>& status() const { return status_; }
  [[nodiscard]] bool is_open(Stream stream) const;
  // True once it has ended and its output is read to the end.
  [[nodiscard]] bool is_finished() const {
    return has_exited_ && !is_open(Stream::kOutput) && !is_open(Stream::kErrors);
  }

  // True once on_over was called, or can no longer be called.
  [[nodiscard]] bool is_over() const { return is_over_; }

  // These write to its input (pipe_writer.h).
  void write(std::string bytes) { in_.write(std::move(bytes)); }
  void push(std::string_view bytes) { in_.push(bytes); }
  // Flushes what is queued, then ends its input.
  void close_input() { in_.finish(); }
  // Reads on, because the reader allows more than before.
  void resume();
  // Stops reading this stream.
  void close(Stream stream);
  // Changes how long other processes may hold its pipes: after its end, or from now on if it has ended.
  void set_drains(Duration output, Duration errors);

  // The owner calls this when it has reaped the process.
  void mark_exited(const ExitStatus& status);
  // Signals its process group; a copy of this process is signalled alone.
  void signal(int signo) const;
  // Ends it with SIGTERM, and after `patience` with SIGKILL. No handler is called again.
  void end(Duration patience);
  // Does the same, but the ladder reaps it, so that this object need not wait.
  void leave_to(StopLadder& ladder, Duration patience);
  // Blocks until it has ended, and reads its output meanwhile. Returns false if it still runs. Must not be called for a
  // process that the owner reaps.
  bool await_exit(Deadline deadline);

 private:
  Child(EventLoop& loop, const Options& options, Handlers handlers);
  Result<void> spawn_with_pipes(SpawnOptions program);
  Result<void> watch_exit();
  void on_stream_end(Stream stream);
  void read_rest();
  void on_exit();
  void settle();
  void end_drain();
  void reap();
  void tell_over();
  void forget();

  // constant after construction
  EventLoop& loop_;
  const std::shared_ptr<const Handlers> handlers_;  // shared: one that runs may destroy us
  // loop only
  Options options_;
  int end_signal_ = 0;
  bool leads_group_ = true;
  pid_t pid_ = 0;
  Fd pidfd_;
  WatchId pid_watch_ = 0;
  bool has_exited_ = false;
  bool is_reaped_ = false;  // or the ladder's to reap
  bool is_over_ = false;    // no handler is called any more
  std::optional<ExitStatus> status_;
  std::array<PipeReader, 2> readers_;  // by Stream
  PipeWriter in_;
  TimerId over_timer_ = 0;
  TimerId kill_timer_ = 0;
  Scope scope_;
};

}  // namespace hvd::launch
