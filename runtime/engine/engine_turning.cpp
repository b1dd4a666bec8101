// Who turns the engine, and how it sleeps. See engine_impl.h and wheel.h.
#include <poll.h>

#include "runtime/base/pause.h"
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

// After a driver the keeper looks again so often; long against a collective, short against what anybody could notice.
constexpr int kDozeMs = 5;
constexpr int kYields = 16;

void sleep_on(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  ::poll(&wait, 1, timeout_ms);  // whatever it says, the caller looks afresh
}

}  // namespace

// The keeper.
void Engine::Impl::run() {
  for (;;) {
    if (wheel_.take() == Wheel::Took::kAfterOthers) {
      note_sleep();
    }
    wheel_.set_deep(false);
    stay_awake();
    const bool is_turning = turn_once().ok();
    if (!is_turning || is_finished()) {
      wheel_.release();
      return;
    }
    const bool dozes = wheel_.was_driven() && is_idle();
    const bool sleeps = !dozes && may_sleep() && !is_finished();  // asked last: going to sleep sends what is left
    wheel_.set_deep(sleeps);
    const int fd = sleeps ? loop_->fd() : queue_->fd();
    const int timeout_ms = sleeps ? loop_->sleep_ms() : dozes && queue_->sleep() ? kDozeMs : 0;
    if (!sleeps && timeout_ms != 0) {
      note_sleep();
    }
    wheel_.release();
    sleep_on(fd, timeout_ms);
  }
}

void Engine::Impl::wait(const Completion& completion) {
  if (completion.is_done()) {
    return;
  }
  if (!wheel_.try_take()) {
    queue_->rouse();
    note_sleep();
    static_cast<void>(completion.wait());
    return;
  }
  // Leaves also when a step throws.
  struct Drive {
    Impl& engine;
    const bool keeper_sleeps = engine.wheel_.is_deep();
    Drive(const Drive&) = delete;
    Drive& operator=(const Drive&) = delete;
    explicit Drive(Impl& turned) : engine(turned) {}
    ~Drive() {
      // What is left to do, or comes later, is the keeper's. One that sleeps deeply is woken by every driver until it
      // is awake: what the one before it wrote for it, this one may have read.
      if (!engine.queue_->sleep() || !engine.is_idle() || keeper_sleeps) {
        engine.queue_->wake();
      }
      engine.wheel_.release();
    }
  } drive_once(*this);
  stay_awake();
  drive(completion);
}

// Spins for a moment, since what comes soon comes without a thread's start; then sleeps, still holding the wheel.
void Engine::Impl::drive(const Completion& completion) {
  for (int waited = 0;;) {
    const bool has_news = take_in();
    advance();
    if (completion.is_done()) {
      return;
    }
    waited = has_news ? 0 : waited + 1;
    if (waited <= spins_) {
      pause_briefly();
    } else if (waited <= spins_ + kYields && !give_way()) {
      waited = spins_ + kYields;  // and sleeps, if nothing has come by the next look
    }
    const bool sleeps = waited > spins_ + kYields && may_sleep();
    if (!sleeps && (has_news || waited % spins_per_turn_ != 0)) {
      continue;  // without a system call
    }
    const auto turned = loop_->turn(sleeps ? std::nullopt : std::optional(Deadline(TimePoint())));
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
