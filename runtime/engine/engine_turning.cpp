// Which thread runs the engine, and how it sleeps. See engine_impl.h and turn_lock.h.
#include "runtime/base/pause.h"
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

// While drivers come and go, the keeper looks again after this time: long compared with a collective, too short for a
// user to notice.
constexpr int kDozeMs = 5;
constexpr int kYields = 16;
// A wait shorter than this does not sleep.
constexpr Duration kLong = std::chrono::milliseconds(1);

}  // namespace

// The keeper's loop.
void Engine::Impl::run() {
  for (;;) {
    if (!turn_lock_->try_take_back()) {
      wait_for_turn();
      continue;
    }
    stay_awake();
    const bool is_turning = turn_once().ok();
    if (!is_turning || is_finished()) {
      turn_lock_->release();
      return;
    }
    const bool dozes = turn_lock_->was_driven() && is_idle();
    const bool sleeps = !dozes && may_sleep() && !is_finished();  // called last: going to sleep sends what is left
    const int fd = sleeps ? loop_->fd() : queue_->fd();
    const int timeout_ms = sleeps ? loop_->sleep_ms() : dozes && queue_->sleep() ? kDozeMs : 0;
    if (sleeps) {
      turn_lock_->park();
    } else if (timeout_ms != 0) {
      note_sleep();
    }
    turn_lock_->release();
    turn_lock_->sleep(fd, timeout_ms);
  }
}

// For the keeper, while a driver has the lock; the driver calls it if there is something to do. It does not sleep on
// the queue's descriptor, because that stays readable until the driver looks.
void Engine::Impl::wait_for_turn() {
  const bool parks = turn_lock_->is_same_driver();
  if (parks) {
    turn_lock_->park();
  }
  const bool is_held = turn_lock_->is_held();  // the driver may have left before it could see that
  if (is_held) {
    note_sleep();
  }
  turn_lock_->sleep(-1, !is_held ? 0 : parks ? -1 : kDozeMs);
}

void Engine::Impl::wait(const Completion& completion, const std::optional<Deadline>& until) {
  if (completion.is_done()) {
    return;
  }
  if (!turn_lock_->try_take()) {
    rouse();
    note_sleep();
    if (until) {
      completion.wait_until(*until);
    } else {
      static_cast<void>(completion.wait());
    }
    return;
  }
  // The destructor releases the lock also if a step throws.
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

// A driver releases the lock. Work that is left, or comes later, is the keeper's.
void Engine::Impl::let_go() {
  const bool leaves_work = !queue_->sleep() || !is_idle();
  turn_lock_->release();
  // Check this now: a thread that saw the lock held has not called the keeper.
  if (leaves_work || queue_->has_more() || turn_lock_->is_parked()) {
    turn_lock_->call();
  }
}

// After a submission: wakes the thread that runs the engine, or the keeper.
void Engine::Impl::rouse() {
  if (!queue_->rouse()) {
    return;
  }
  if (turn_lock_->is_held()) {
    queue_->wake();
  } else {
    turn_lock_->call();
  }
}

// Does the same for events that only the loop's handlers see. A driver that is just leaving may miss it, but not the
// keeper, which then dozes for kDozeMs at most.
void Engine::Impl::wake() {
  queue_->wake();
  if (!turn_lock_->is_held()) {
    turn_lock_->call();
  }
}

// Spins for a moment, since a result that comes soon then needs no thread to wake up; then it sleeps, still holding the
// lock. With little time left it does not sleep, because the loop sleeps whole milliseconds.
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
      waited = spins_ + kYields;  // sleep if nothing has come by the next look
    }
    const bool sleeps = waited > spins_ + kYields && has_time && may_sleep();
    if (!sleeps && (has_news || waited % spins_per_turn_ != 0)) {
      continue;  // look again without a system call
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

// Takes in all that has arrived, without waiting, and acts on it.
Result<void> Engine::Impl::turn_once() {
  take_in();
  if (auto turned = loop_->turn(Deadline(TimePoint())); !turned.ok()) {
    // Without its loop the engine receives nothing any more, so end what can be ended.
    end_job(turned.error());
    fail_pending();
    return turned;
  }
  advance();
  return {};
}

// Takes in what arrives without the kernel: submissions, and frames through shared memory. Returns true if there was
// any.
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
  // This rank's current step may take long, but process sets without it need not wait for that.
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

// True if nothing is asked for, and only a message or a submission can change that.
bool Engine::Impl::is_idle() const {
  return pending_.empty() && steps_.empty() && !over_ && loop_->sleep_ms() < 0;
}

}  // namespace hvd
