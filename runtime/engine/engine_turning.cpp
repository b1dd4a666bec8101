// Who turns the engine, and how it sleeps. See engine_impl.h and wheel.h.
#include "runtime/base/pause.h"
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

// After a driver the keeper looks again so often; long against a collective, short against what anybody could notice.
constexpr int kDozeMs = 5;
constexpr int kYields = 16;
// Time enough to sleep.
constexpr Duration kLong = std::chrono::milliseconds(1);

}  // namespace

// The keeper.
void Engine::Impl::run() {
  for (;;) {
    if (!wheel_->try_take_back()) {
      wait_for_wheel();
      continue;
    }
    stay_awake();
    const bool is_turning = turn_once().ok();
    if (!is_turning || is_finished()) {
      wheel_->release();
      return;
    }
    const bool dozes = wheel_->was_driven() && is_idle();
    const bool sleeps = !dozes && may_sleep() && !is_finished();  // asked last: going to sleep sends what is left
    const int fd = sleeps ? loop_->fd() : queue_->fd();
    const int timeout_ms = sleeps ? loop_->sleep_ms() : dozes && queue_->sleep() ? kDozeMs : 0;
    if (sleeps) {
      wheel_->park();
    } else if (timeout_ms != 0) {
      note_sleep();
    }
    wheel_->release();
    wheel_->sleep(fd, timeout_ms);
  }
}

// The keeper, while a driver has the wheel, who calls it when there is something to do. Not by the queue's descriptor:
// that is readable until the driver looks.
void Engine::Impl::wait_for_wheel() {
  const bool parks = wheel_->is_same_driver();
  if (parks) {
    wheel_->park();
  }
  const bool is_held = wheel_->is_held();  // it may have left before it could see that
  if (is_held) {
    note_sleep();
  }
  wheel_->sleep(-1, !is_held ? 0 : parks ? -1 : kDozeMs);
}

void Engine::Impl::wait(const Completion& completion, const std::optional<Deadline>& until) {
  if (completion.is_done()) {
    return;
  }
  if (!wheel_->try_take()) {
    rouse();
    note_sleep();
    if (until) {
      completion.wait_until(*until);
    } else {
      static_cast<void>(completion.wait());
    }
    return;
  }
  // Leaves also when a step throws.
  struct Drive {
    Impl& engine;
    Drive(const Drive&) = delete;
    Drive& operator=(const Drive&) = delete;
    explicit Drive(Impl& turned) : engine(turned) {}
    ~Drive() { engine.let_go(); }
  } drive_once(*this);
  stay_awake();
  drive(completion, until);
}

// A driver. What is left to do, or comes later, is the keeper's.
void Engine::Impl::let_go() {
  const bool leaves_work = !queue_->sleep() || !is_idle();
  wheel_->release();
  // Asked now: who saw the wheel held has not called the keeper.
  if (leaves_work || queue_->has_more() || wheel_->is_parked()) {
    wheel_->call();
  }
}

// Whoever turns the engine, or is to, after something was submitted.
void Engine::Impl::rouse() {
  if (!queue_->rouse()) {
    return;
  }
  if (wheel_->is_held()) {
    queue_->wake();
  } else {
    wheel_->call();
  }
}

// The same for what only the loop's handlers look at. A driver that just leaves may miss it, not the keeper, which
// dozes after that at most.
void Engine::Impl::wake() {
  queue_->wake();
  if (!wheel_->is_held()) {
    wheel_->call();
  }
}

// Spins for a moment, since what comes soon comes without a thread's start; then sleeps, still holding the wheel.
// Who has little time does not sleep, as the loop's sleep ends by whole milliseconds.
void Engine::Impl::drive(const Completion& completion, const std::optional<Deadline>& until) {
  const bool has_time = !until || until->at() - std::chrono::steady_clock::now() >= kLong;
  for (int waited = 0;;) {
    const bool has_news = take_in();
    advance();
    if (completion.is_done() || (until && until->has_passed())) {
      return;
    }
    waited = has_news ? 0 : waited + 1;
    if (waited <= spins_) {
      pause_briefly();
    } else if ((waited <= spins_ + kYields || !has_time) && !give_way()) {
      waited = spins_ + kYields;  // and sleeps, if nothing has come by the next look
    }
    const bool sleeps = waited > spins_ + kYields && has_time && may_sleep();
    if (!sleeps && (has_news || waited % spins_per_turn_ != 0)) {
      continue;  // without a system call
    }
    const auto turned = loop_->turn(sleeps ? until : std::optional(Deadline(TimePoint())));
    stay_awake();
    waited = sleeps ? 0 : waited;
    if (!turned.ok()) {
      end_job(turned.error());
      fail_pending();
      return;
    }
  }
}

// All that is there, without waiting, and acts on it.
Result<void> Engine::Impl::turn_once() {
  take_in();
  if (auto turned = loop_->turn(Deadline(TimePoint())); !turned.ok()) {
    // Without its loop the engine hears nothing any more: end here what can be ended.
    end_job(turned.error());
    fail_pending();
    return turned;
  }
  advance();
  return {};
}

// What comes without the kernel: submissions, and frames through shared memory. True when there was any.
bool Engine::Impl::take_in() {
  const bool has_submissions = queue_->has_waiting();
  if (has_submissions) {
    on_submissions();
  }
  return channel_->poll() || has_submissions;
}

Result<void> Engine::Impl::check() {
  take_in();
  HVD_TRY(loop_->turn(Deadline(TimePoint())));
  if (stall_watch_) {
    stall_watch_->note_running(loop_->now());
  }
  // What this rank is at may take long, and is no concern of process sets without it.
  if (is_coordinator() && sets_.size() > 1 && !is_shutdown_announced_ && !over_ && !suspicion_) {
    announce(coordinator_->decide_for_others());
  }
  if (over_) {
    return *over_;
  }
  return {};
}

void Engine::Impl::stay_awake() {
  disarm_stall_timer();
  queue_->stay_awake();
  channel_->stay_awake();
}

bool Engine::Impl::may_sleep() {
  if (!queue_->sleep() || !channel_->sleep()) {
    return false;
  }
  note_sleep();
  arm_stall_timer();
  return true;
}

// Nothing is asked for, and nothing but a message or a submission can change that.
bool Engine::Impl::is_idle() const {
  return pending_.empty() && steps_.empty() && !over_ && loop_->sleep_ms() < 0;
}

}  // namespace hvd
