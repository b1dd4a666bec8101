// Child: a process that this one has started, with up to three pipes on the event loop. It is the one way here to run a
// program (spawn.h) or a copy of this process beside the loop, and it keeps these rules for all of them:
//  - What a process has written is read before its end is told. Whoever it left behind may hold its pipes for a while.
//  - A pipe is read only as far as its reader allows; what waits for the reader is never dropped.
//  - A signal goes to the process only while it is not reaped, since later its number may be a stranger's.
//
// Thread: loop only. Any handler may destroy the Child. Destroying it sends a process that still runs what it would get
// at the end of this process (SpawnOptions::death_signal), and reaps it; leave_to() lets it end in its own time.
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
#include "launcher/process/pipe_writer.h"
#include "launcher/process/spawn.h"
#include "launcher/process/stop_ladder.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/base/scope.h"

namespace hvd::launch {

class Child {
 public:
  enum class Stream : std::uint8_t { kOutput = 0, kErrors = 1 };

  // Which pipes it gets, and how long its end may take.
  struct Options {
    bool has_input = false;
    bool has_output = true;
    bool has_errors = true;
    bool joins_errors = false;  // what it prints as errors comes with its output
    // The owner reaps all children of this process, and tells the end of this one by mark_exited().
    bool is_reaped_elsewhere = false;
    // For how long others may hold a pipe once the process has ended.
    Duration output_drain = std::chrono::seconds(1);
    Duration errors_drain = std::chrono::seconds(1);
    // It is over, too, when it lives on so long without its output; nothing: it is waited for.
    std::optional<Duration> end_time;
  };

  // All but on_output may be missing.
  struct Handlers {
    std::function<std::size_t()> allowance;  // how many bytes may come now; 0: nothing is read until resume()
    std::function<void(Stream, std::string_view)> on_output;
    std::function<void(Stream)> on_output_end;
    std::function<void()> on_taken;  // it took bytes of its input, later than they were written
    // Nothing more comes; `how` it ended, in words. Without a status it lives on. Nothing is called after this.
    std::function<void(const std::optional<ExitStatus>& status, const std::string& how)> on_over;
  };

  // `program` without descriptors for what gets a pipe. Errors are those of spawn(). The loop must outlive the Child.
  static Result<std::unique_ptr<Child>> start(EventLoop& loop, SpawnOptions program, const Options& options,
                                              Handlers handlers);
  // A copy of this process, made by fork(2), that writes to the other end of `output`. It is reaped elsewhere.
  static Result<std::unique_ptr<Child>> adopt(EventLoop& loop, pid_t pid, Fd output, Handlers handlers);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool has_exited() const { return has_exited_; }
  // Known once it is reaped.
  [[nodiscard]] const std::optional<ExitStatus>& status() const { return status_; }
  [[nodiscard]] bool is_open(Stream stream) const { return source_of(stream).fd.is_open(); }
  // It has ended, and nothing more comes of it.
  [[nodiscard]] bool is_finished() const {
    return has_exited_ && !is_open(Stream::kOutput) && !is_open(Stream::kErrors);
  }

  // on_over was called, or is never going to be.
  [[nodiscard]] bool is_over() const { return is_over_; }

  // What goes into its input (pipe_writer.h).
  void write(std::string bytes) { in_.write(std::move(bytes)); }
  void push(std::string_view bytes) { in_.push(bytes); }
  // Flushes what is queued, then ends its input.
  void close_input() { in_.finish(); }
  // More is allowed than before.
  void resume();
  // Reads no more of it.
  void close(Stream stream);
  void set_output_drain(Duration patience) { options_.output_drain = patience; }

  // Its process was reaped elsewhere.
  void mark_exited(const ExitStatus& status);
  // To its process group, or to a copy of this process alone.
  void signal(int signo) const;
  // Nobody needs it any more: no handler is called again, and it gets SIGTERM, and after `patience` SIGKILL.
  void end(Duration patience);
  // The same without this object: the ladder reaps it.
  void leave_to(StopLadder& ladder, Duration patience);
  // Waits here until it has ended; false: it runs on. Reads what it has written. Only for one that is reaped here.
  bool await_exit(Deadline deadline);

 private:
  struct Source {
    Stream stream = Stream::kOutput;
    Fd fd;
    WatchId watch = 0;
    bool is_paused = false;
  };

  Child(EventLoop& loop, const Options& options, Handlers handlers);
  Result<void> spawn_with_pipes(SpawnOptions program);
  Result<void> watch_exit();
  Result<void> watch(Source& source);
  [[nodiscard]] const Source& source_of(Stream stream) const { return sources_[static_cast<std::size_t>(stream)]; }
  Source& source_of(Stream stream) { return sources_[static_cast<std::size_t>(stream)]; }
  void read(Source& source, std::size_t budget);
  void read_rest();
  void close(Source& source);
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
  std::array<Source, 2> sources_;
  PipeWriter in_;
  TimerId over_timer_ = 0;
  TimerId kill_timer_ = 0;
  Scope scope_;
};

}  // namespace hvd::launch
