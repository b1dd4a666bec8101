// RankProcess is one rank on this node: a Child (process/child.h) with a number. AgentCore drives and reaps it.
//
// The process that was started may be a script around the program that does the work. A signal goes to both, and the
// script may end of it at once while the program still saves its state. So the rank's time to end is that of its group.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string_view>

#include "launcher/process/child.h"
#include "launcher/wire/messages.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class RankProcess {
 public:
  // Sink hears what a rank reports; AgentCore turns it into frames.
  struct Sink {
    // Returns how many bytes may be taken now; 0 pauses the pipe until resume().
    std::function<std::size_t()> allowance;
    std::function<void(int rank, StreamId, std::string_view bytes)> on_output;
    std::function<void(int rank, StreamId)> on_output_end;
  };

  // `options` must have no descriptors for output, since the rank gets its own pipes.
  static Result<std::unique_ptr<RankProcess>> start(EventLoop& loop, int rank, SpawnOptions options, Sink sink);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] pid_t pid() const { return child_->pid(); }
  [[nodiscard]] bool has_exited() const { return child_->has_exited(); }
  [[nodiscard]] bool has_failed() const { return child_->status() && !child_->status()->is_success(); }
  // Says that it has exited, and nothing more will come from its pipes.
  [[nodiscard]] bool is_finished() const { return child_->is_finished(); }

  // Its process was reaped.
  void mark_exited(const ExitStatus& status) { child_->mark_exited(status); }
  void signal_group(int signo) const { child_->signal(signo); }
  // Tells its group to end. After `grace` it is killed, and until then what is left of it may write to the rank's
  // pipes. SIGKILL leaves nobody any time.
  void stop(int signo, Duration grace);
  // True when it was told to end while it ran.
  [[nodiscard]] bool was_told() const { return told_by_ != 0; }
  // Until then what it leaves has time to end; in the past, if it was not told to.
  [[nodiscard]] TimePoint grace_ends() const { return grace_ends_; }
  // True when this process, which it has left, was told to end with it, by a signal that it does not ignore.
  [[nodiscard]] bool has_told(pid_t left) const;
  // Nothing that it has started is left. Whoever still holds its pipes is waited for only as after any end.
  void end_drain();
  // Reads again after allowance() was 0.
  void resume() { child_->resume(); }

 private:
  RankProcess(EventLoop& loop, int rank, std::unique_ptr<Child> child)
      : loop_(loop), rank_(rank), child_(std::move(child)) {}

  // constant after construction
  EventLoop& loop_;
  const int rank_;
  const std::unique_ptr<Child> child_;
  // loop only
  int told_by_ = 0;  // the signal; 0: none
  TimePoint grace_ends_{};
};

}  // namespace hvd::launch
