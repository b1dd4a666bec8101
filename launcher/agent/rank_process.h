// RankProcess is one rank on this node: a Child (process/child.h) with a number. AgentCore drives and reaps it.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string_view>

#include "launcher/process/child.h"
#include "launcher/wire/messages.h"
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
  // Reads again after allowance() was 0.
  void resume() { child_->resume(); }

 private:
  RankProcess(int rank, std::unique_ptr<Child> child) : rank_(rank), child_(std::move(child)) {}

  const int rank_;
  const std::unique_ptr<Child> child_;
};

}  // namespace hvd::launch
