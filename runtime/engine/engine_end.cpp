// The end of a job, for one rank. See engine_impl.h.
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

// The time that the engine waits, after a connection broke, for a report of the cause. The agent's notice needs a
// process exit, a pidfd and two hops; every rank must have its error within 5 s.
constexpr Duration kSuspicionTime = std::chrono::seconds(1);

}  // namespace

void Engine::Impl::shut_down(int by_rank) {
  if (over_) {
    return;
  }
  is_orderly_ = true;
  over(Error(Code::kLostPeer, "Horovod has been shut down by rank " + std::to_string(by_rank)), by_rank);
  if (!pending_.empty()) {
    tell_over();
  }
  fail_pending();
}

void Engine::Impl::suspect(const Error& why, int by) {
  if (over_ || suspicion_) {
    return;
  }
  suspicion_ = why;
  suspect_ = by;
  suspicion_timer_ = loop_->after(kSuspicionTime, [this] {
    suspicion_timer_ = 0;
    end_job(*suspicion_, suspect_);
  });
}

void Engine::Impl::end_job(const Error& cause, int by) {
  if (over_) {
    return;
  }
  const bool has_waiters = !pending_.empty();
  parts_.log->write(has_waiters ? LogLevel::kError : LogLevel::kDebug,
                    "rank " + std::to_string(parts_.map.rank) + ": the job is over: " + cause.message());
  std::string frames;
  append_abort(frames, cause.message());
  channel_->send(frames);
  over(cause, by);
  if (cause.code() == Code::kLostPeer) {
    tell_over();
  }
  channel_->close_output();
}

void Engine::Impl::tell_over() {
  if (parts_.store != nullptr && !is_leaving_) {
    parts_.store->tell({FailureNews::Kind::kOver, over_by_, 0, one_line(over_->message())});
  }
}

// Sets the state after the end. Pending operations are failed later, when no collective uses their memory any more.
void Engine::Impl::over(const Error& cause, int by) {
  over_by_ = by;
  over_ = Error(Code::kLostPeer, cause.message());
  if (!is_orderly_) {
    devices_->abort(*over_);
  }
  loop_->cancel(suspicion_timer_);
  suspicion_timer_ = 0;
  unwatch_notice();
  steps_.clear();
  for (OpRef& op : queue_->close(*over_)) {
    const OpKey key{op->what.process_set, op->what.name};
    pending_.emplace(key, std::move(op));
  }
}

void Engine::Impl::fail_pending() {
  while (!pending_.empty()) {
    const auto node = pending_.extract(pending_.begin());
    queue_->forget(node.key());
    PendingOp& op = *node.mapped();
    const std::string& name = op.what.name;
    if (is_leaving_) {
      op.finish(Error(Code::kCancelled, "hvd_shutdown was called while '" + name + "' was pending"));
    } else if (is_orderly_) {
      op.finish(Error(Code::kLostPeer, over_->message() + " before all ranks took part in '" + name + "'"));
    } else {
      op.finish(*over_);
    }
  }
}

// Ends the links after an orderly end. The coordinator waits until all others have ended, because until then it relays
// aborts.
void Engine::Impl::say_goodbye() {
  if (!is_orderly_ || has_said_own_goodbye_ || (is_coordinator() && !channel_->have_all_ended())) {
    return;
  }
  has_said_own_goodbye_ = true;
  channel_->send(make_frame(control_wire::kSpec, control_wire::kGoodbye, {}));
  channel_->close_output();
}

void Engine::Impl::unwatch_notice() {
  loop_->unwatch(notice_watch_);
  notice_watch_ = 0;
}

bool Engine::Impl::is_finished() const {
  return is_leaving_ && over_ && (is_leave_overdue_ || channel_->is_finished());
}

}  // namespace hvd
