// StallTimer decides when the coordinator looks for tensors that some ranks never ask for (observe/stall_watch.h), and
// for rounds that some node never answers (answer_calls.h). An engine that is awake looks by itself. A timer exists
// only while it sleeps and something is incomplete, so an idle engine is not woken. Thread: engine only, on the
// coordinator.
#pragma once

#include <functional>

#include "runtime/base/log.h"
#include "runtime/coordinate/answer_calls.h"
#include "runtime/coordinate/coordinator.h"
#include "runtime/io/event_loop.h"
#include "runtime/observe/stall_watch.h"

namespace hvd {

class StallTimer {
 public:
  // `on_end` is called with the error if the job must end.
  StallTimer(StallOptions options, EventLoop& loop, const Coordinator& coordinator, AnswerCalls& calls, Log& log,
             std::function<void(const Error&)> on_end);

  // Call before the engine sleeps, and when it is awake again.
  void arm();
  void disarm();
  // Call for each decision: a coordinator that never sleeps may still have a rank that never asks.
  void count_decision();
  // This process runs, but has no time to look.
  void note_running() { watch_.note_running(loop_.now()); }
  // The job is over.
  void stop() { is_stopped_ = true; }

 private:
  void look();

  EventLoop& loop_;
  const Coordinator& coordinator_;
  AnswerCalls& calls_;
  Log& log_;
  const std::function<void(const Error&)> on_end_;
  const SteadyClock clock_;
  StallWatch watch_;
  TimerId timer_ = 0;
  TimePoint next_look_{};
  unsigned decisions_ = 0;
  bool is_stopped_ = false;
};

}  // namespace hvd
