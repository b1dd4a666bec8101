// Observation of the engine: timeline, counters, stalls. See engine_impl.h.
#include "runtime/engine/engine_impl.h"
#include "runtime/execute/op_trace.h"

namespace hvd {

void Engine::Impl::open_timeline() {
  const TimelineOptions& options = parts_.options.timeline;
  timeline_ = std::make_unique<Timeline>(
      options, [this](const Error& why) { parts_.log->write(LogLevel::kWarning, why.message()); });
  sets_[0].executor->trace_to(timeline_.get());
  if (options.path.empty()) {
    return;
  }
  if (const auto started = timeline_->start(options.path, options.marks_cycles); !started.ok()) {
    // A training run is worth more than its timeline, so the job goes on.
    parts_.log->write(LogLevel::kError, started.error().message() + "; the job goes on without");
  }
}

void Engine::Impl::trace_request(int rank, const Request& request) {
  Timeline::Moment now(*timeline_);
  now.asked({request.process_set, request.name}, request.kind, rank);
  for (const GroupTensor& tensor : request.group) {
    now.asked({request.process_set, tensor.name}, request.kind, rank);
  }
}

void Engine::Impl::trace_ready(const Response& response) {
  const auto set = sets_.find(response.process_set);
  const bool runs_here = !response.is_error() && set != sets_.end() && set->second.executor.has_value();
  Timeline::Moment now(*timeline_);
  for (const std::string& name : names_of(response)) {
    now.ready({response.process_set, name}, response.kind, runs_here);
  }
}

// For the coordinator, for tensors that are asked for by a bit.
void Engine::Impl::trace_hit(const Request& request) {
  const auto set = sets_.find(request.process_set);
  const bool runs_here = set != sets_.end() && set->second.executor.has_value();
  Timeline::Moment now(*timeline_);
  now.ready({request.process_set, request.name}, request.kind, runs_here);
  for (const GroupTensor& tensor : request.group) {
    now.ready({request.process_set, tensor.name}, request.kind, runs_here);
  }
}

// Ends the current phase of operations that are not finished: a device has them now, or they have failed.
void Engine::Impl::trace_pause(std::span<PendingOp* const> ops) {
  Timeline::Moment now(*timeline_);
  for (const PendingOp* op : ops) {
    now.pause(trace_key(op->what), op->what.kind);
  }
}

void Engine::Impl::trace_end(std::span<PendingOp* const> ops) {
  Timeline::Moment now(*timeline_);
  for (const PendingOp* op : ops) {
    now.done(trace_key(op->what), op->what.kind, op->what.dtype, op->what.shape);
  }
}

// Such an operation waits for the others during nearly all of its time. Thread: the calling one.
void Engine::Impl::trace_quick(int process_set, const QuickOp& op, std::uint64_t began) {
  const std::string noname = op.name.empty() ? noname_of(op.kind, op.noname) : std::string();
  const TraceKey key{process_set, op.name.empty() ? std::string_view(noname) : op.name};
  Timeline::Moment(*timeline_).met(key, op.kind, began, op.dtype, op.shape);
}

void Engine::Impl::count(SetCounters& counters, std::span<PendingOp* const> ops, std::uint64_t known_at,
                         std::uint64_t began) {
  SetCounters::Step step;
  step.move_ticks = ticks_between(began, ticks_now());
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;  // a stand-in, which this rank did not ask for
    }
    ++step.operations;
    step.bytes += has_no_tensor(op->what.kind) ? 0 : input_bytes(op->what);
    step.negotiate_ticks += ticks_between(op->asked_at, known_at);
    step.wait_ticks += ticks_between(known_at, began);
  }
  counters.add(step);
}

// If the file cannot be written, that is logged and the search goes on, because training matters more.
void Engine::Impl::open_autotune_log() {
  const AutotuneOptions& options = parts_.options.autotune;
  if (!options.is_on || options.log_path.empty()) {
    return;
  }
  auto log = AutotuneLog::create(options.log_path, parts_.map.node_count > 1, parts_.options.cache_capacity > 0);
  if (log.ok()) {
    autotune_log_.emplace(std::move(log).value());
  } else {
    parts_.log->write(LogLevel::kWarning, log.error().message());
  }
}

void Engine::Impl::tell_tuning() {
  if (!parts_.options.autotune.is_on) {
    return;
  }
  const Autotuner::News news = coordinator_->take_tuning_news();
  for (const Autotuner::Trial& trial : news.trials) {
    if (const auto written = autotune_log_ ? autotune_log_->write(trial) : Result<void>(); !written.ok()) {
      parts_.log->write(LogLevel::kWarning, written.error().message());
      autotune_log_.reset();
    }
  }
  if (news.is_done) {
    const TunedSetting& best = news.trials.back().setting;
    parts_.log->write(LogLevel::kInfo,
                      "autotune stays with HOROVOD_FUSION_THRESHOLD=" + std::to_string(best.fusion_bytes) +
                          " and HOROVOD_CYCLE_TIME=" +
                          std::to_string(std::chrono::duration<double, std::milli>(best.window).count()));
  }
}

// A timer exists only while the engine sleeps and something is incomplete. An engine that is awake looks by itself, and
// an idle engine is not woken.
void Engine::Impl::arm_stall_timer() {
  if (stall_watch_ && stall_timer_ == 0 && !over_ && coordinator_->has_incomplete()) {
    stall_timer_ = loop_->after(std::max(Duration::zero(), next_look_ - clock_.now()), [this] {
      stall_timer_ = 0;
      look_for_stalls();
    });
  }
}

// A timer that is due is left to run. Otherwise the keeper that it woke would be woken again and again, and never look.
void Engine::Impl::disarm_stall_timer() {
  if (stall_timer_ != 0 && clock_.now() < next_look_) {
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
