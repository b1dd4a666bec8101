// What is observed of the engine, and told. See engine_impl.h.
#include "runtime/engine/engine_impl.h"

namespace hvd {

void Engine::Impl::count(ProcessSet& set, std::span<PendingOp* const> ops, std::uint64_t known_at,
                         std::uint64_t began) {
  SetCounters::Step step;
  step.move_ticks = ticks_between(began, ticks_now());
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;  // a stand-in, which nobody asked for
    }
    ++step.operations;
    step.bytes += has_no_tensor(op->what.kind) ? 0 : input_bytes(op->what);
    step.negotiate_ticks += ticks_between(op->asked_at, known_at);
    step.wait_ticks += ticks_between(known_at, began);
  }
  set.counters->add(step);
}

// A timer only while the engine sleeps, and only while something is incomplete: what is awake looks by itself, and an
// engine that is idle is woken by nothing.
void Engine::Impl::arm_stall_timer() {
  if (stall_watch_ && stall_timer_ == 0 && !over_ && coordinator_->has_incomplete()) {
    stall_timer_ = loop_->after(std::max(Duration::zero(), next_look_ - clock_.now()), [this] {
      stall_timer_ = 0;
      look_for_stalls();
    });
  }
}

void Engine::Impl::disarm_stall_timer() {
  if (stall_timer_ != 0) {
    loop_->cancel(stall_timer_);
    stall_timer_ = 0;
  }
}

void Engine::Impl::look_for_stalls() {
  const TimePoint now = clock_.now();
  if (now < next_look_ || over_) {
    return;
  }
  next_look_ = now + stall_watch_->period();
  const StallWatch::Finding finding = stall_watch_->look(now, coordinator_->incomplete());
  if (!finding.warning.empty()) {
    parts_.log->write(LogLevel::kWarning, finding.warning);
  }
  if (finding.end) {
    end_job(Error(Code::kTimeout, *finding.end));
  }
}

}  // namespace hvd
