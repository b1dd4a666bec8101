#include "runtime/engine/job_ending.h"

#include <variant>

namespace hvd {

Result<void> JobEnding::open() {
  if (parts_.store != nullptr && parts_.store->notice_fd() >= 0) {
    HVD_TRY_ASSIGN(notice_watch_,
                   parts_.loop.watch(parts_.store->notice_fd(), EPOLLIN, [this](std::uint32_t) { on_notice(); }));
  }
  return {};
}

void JobEnding::on_notice() {
  if (const auto notice = parts_.store->poll_notice()) {
    carry_out(end_.on_notice(notice->cause));
  }
}

void JobEnding::fail_loop(const Error& cause) {
  fail(cause);
  fail_pending();
}

void JobEnding::finish() {
  fail_pending();
  ControlChannel& channel = parts_.source.channel();
  if (end_.take_goodbye(channel.have_all_ended())) {
    channel.send(make_frame(control_wire::kSpec, control_wire::kGoodbye, {}));
    channel.close_output();
  }
}

void JobEnding::fail_pending() {
  parts_.pending.fail_all([this](const std::string& name) { return end_.error_of(name); });
}

void JobEnding::carry_out(const EndActions& actions) {
  for (const EndAction& action : actions) {
    std::visit([this](const auto& one) { act(one); }, action);
  }
}

void JobEnding::act(const AwaitCause& action) {
  cause_timer_ = parts_.loop.after(action.limit, [this] {
    cause_timer_ = 0;
    carry_out(end_.on_cause_due());
  });
}

void JobEnding::act(const AwaitOthers& action) {
  parts_.loop.after(action.limit, [this] { carry_out(end_.on_leave_due()); });
}

void JobEnding::act(const AskToLeave&) {
  parts_.source.leave();
}

void JobEnding::act(const PassOn& action) {
  // Where nothing waits for the job, its end is no error of the program.
  parts_.log.write(parts_.pending.empty() ? LogLevel::kDebug : LogLevel::kError,
                   "rank " + std::to_string(parts_.map.rank) + ": its operations fail: " + action.cause);
  std::string frames;
  append_abort(frames, action.cause);
  parts_.source.channel().send(frames);
}

// Pending operations are failed later, when no collective uses their memory any more.
void JobEnding::act(const CloseJob& action) {
  const Error& why = *end_.over();
  if (!action.is_orderly) {
    parts_.devices.abort(why);
  }
  parts_.loop.cancel(cause_timer_);
  cause_timer_ = 0;
  parts_.loop.unwatch(notice_watch_);
  notice_watch_ = 0;
  parts_.source.close();
  for (OpRef& op : parts_.queue.close(why)) {
    parts_.pending.add(std::move(op));
  }
}

void JobEnding::act(const TellAgent& action) {
  if (parts_.store != nullptr) {
    parts_.store->tell({FailureNews::Kind::kOver, action.by, 0, one_line(action.cause)});
  }
}

void JobEnding::act(const TellOnceNoticed& action) {
  const std::lock_guard lock(mu_);
  untold_ = {FailureNews::Kind::kOver, action.by, 0, one_line(action.cause)};
}

void JobEnding::act(const TellIfPending&) {
  if (parts_.store == nullptr || parts_.pending.empty()) {
    return;
  }
  const std::lock_guard lock(mu_);
  if (untold_) {
    parts_.store->tell(*untold_);
    untold_.reset();
  }
}

// It returns when the agent has been told, by whichever thread: the program may end at once, and its end must not come
// first. So the lock is held meanwhile, for a second at most.
void JobEnding::note_refused() {
  if (parts_.store == nullptr) {
    return;
  }
  const std::lock_guard lock(mu_);
  if (untold_) {
    parts_.store->tell_apart(*untold_);
    untold_.reset();
  }
}

void JobEnding::act(const CloseOutput&) {
  parts_.source.channel().close_output();
}

void JobEnding::act(const FailPending&) {
  fail_pending();
}

}  // namespace hvd
