#include "runtime/engine/engine_turns.h"

#include <algorithm>
#include <exception>

#include "runtime/base/machine.h"
#include "runtime/link/shm_segment.h"

namespace hvd {
namespace {

// While drivers come and go, the keeper looks again after this time: long compared with a collective, too short for a
// user to notice.
constexpr int kDozeMs = 5;
constexpr int kYields = 16;
// A wait shorter than this does not sleep.
constexpr Duration kLong = std::chrono::milliseconds(1);
// If a peer speaks through the kernel, a spinning driver asks the kernel at every look; this many looks take about 50
// us.
constexpr int kSpinsWithKernel = 100;
constexpr int kSpinsPerTurn = 256;  // for other drivers

int spins_of(const EngineCore& core) {
  const auto& mesh = core.parts().mesh;
  const ShmSegment* neighbours = mesh == nullptr ? nullptr : mesh->shm().get();
  const int spins = neighbours == nullptr ? kSpinsWithKernel : neighbours->spins();
  return core.needs_loop() ? std::min(spins, kSpinsWithKernel) : spins;
}

}  // namespace

Result<std::unique_ptr<EngineTurns>> EngineTurns::create(EngineCore& core) {
  HVD_TRY_ASSIGN(auto lock, TurnLock::create());
  return std::unique_ptr<EngineTurns>(new EngineTurns(core, std::move(lock)));
}

EngineTurns::EngineTurns(EngineCore& core, std::unique_ptr<TurnLock> lock)
    : core_(core),
      lock_(std::move(lock)),
      spins_(spins_of(core)),
      spins_per_turn_(core.needs_loop() ? 1 : kSpinsPerTurn) {}

void EngineTurns::run() {
  for (;;) {
    if (!lock_->try_take_back()) {
      wait_for_turn();
      continue;
    }
    const std::optional<Rest> rest = keep();
    lock_->release();
    if (!rest) {
      return;
    }
    lock_->sleep(rest->fd, rest->timeout_ms);
  }
}

// The keeper's turn, while it has the lock. It returns nothing after the last one.
std::optional<EngineTurns::Rest> EngineTurns::keep() {
  try {
    core_.stay_awake();
    if (!turn_once().ok() || core_.is_finished()) {
      return std::nullopt;
    }
    const bool dozes = lock_->was_driven() && core_.is_idle();
    const bool sleeps =
        !dozes && core_.sleep() && !core_.is_finished();  // called last: going to sleep sends what is left
    const int fd = sleeps ? core_.loop().fd() : core_.queue().fd();
    const int timeout_ms = sleeps ? core_.loop().sleep_ms() : dozes && core_.queue().sleep() ? kDozeMs : 0;
    if (sleeps) {
      lock_->park();
    } else if (timeout_ms != 0) {
      core_.note_sleep();
    }
    return Rest{fd, timeout_ms};
  } catch (const std::exception& thrown) {
    return core_.outlives(thrown) ? std::optional(Rest{core_.queue().fd(), 0}) : std::nullopt;
  }
}

// For the keeper, while a driver has the lock; the driver calls it if there is something to do. It does not sleep on
// the queue's descriptor, because that stays readable until the driver looks.
void EngineTurns::wait_for_turn() {
  const bool parks = lock_->is_same_driver();
  if (parks) {
    lock_->park();
  }
  const bool is_held = lock_->is_held();  // the driver may have left before it could see that
  if (is_held) {
    core_.note_sleep();
  }
  lock_->sleep(-1, !is_held ? 0 : parks ? -1 : kDozeMs);
}

void EngineTurns::wait(const Completion& completion, const std::optional<Deadline>& until) {
  if (completion.is_done()) {
    return;
  }
  if (lock_->try_take()) {
    if (drive_once(completion, until)) {
      return;
    }
  } else {
    rouse();
  }
  core_.note_sleep();
  if (until) {
    completion.wait_until(*until);
  } else {
    static_cast<void>(completion.wait());
  }
}

// Runs the engine while this thread has the lock. False: something threw, and the keeper does the rest.
bool EngineTurns::drive_once(const Completion& completion, const std::optional<Deadline>& until) {
  // The destructor releases the lock whatever throws.
  struct Drive {
    EngineTurns& turns;
    Drive(const Drive&) = delete;
    Drive& operator=(const Drive&) = delete;
    explicit Drive(EngineTurns& driven) : turns(driven) {}
    ~Drive() { turns.let_go(); }
  } held(*this);
  try {
    core_.stay_awake();
    drive(completion, until);
    return true;
  } catch (const std::exception& thrown) {
    static_cast<void>(core_.outlives(thrown));
    return false;
  }
}

// A driver releases the lock. Work that is left, or comes later, is the keeper's.
void EngineTurns::let_go() {
  SubmitQueue& queue = core_.queue();
  const bool leaves_work = !queue.sleep() || !core_.is_idle();
  lock_->release();
  // Check this now: a thread that saw the lock held has not called the keeper.
  if (leaves_work || queue.has_more() || lock_->is_parked()) {
    lock_->call();
  }
}

void EngineTurns::rouse() {
  if (!core_.queue().rouse()) {
    return;
  }
  if (lock_->is_held()) {
    core_.queue().wake();
  } else {
    lock_->call();
  }
}

// A driver that is just leaving may miss it, but not the keeper, which then dozes for kDozeMs at most.
void EngineTurns::wake() {
  core_.queue().wake();
  if (!lock_->is_held()) {
    lock_->call();
  }
}

// Spins for a moment, since a result that comes soon then needs no thread to wake up; then it sleeps, still holding the
// lock. With little time left it does not sleep, because the loop sleeps whole milliseconds.
void EngineTurns::drive(const Completion& completion, const std::optional<Deadline>& until) {
  const bool has_time = !until || until->at() - std::chrono::steady_clock::now() >= kLong;
  int looks = 0;  // since the last turn of the loop
  for (int waited = 0;;) {
    const bool has_news = core_.take_in();
    core_.advance();
    if (completion.is_done() || (until && until->has_passed())) {
      return;
    }
    waited = has_news ? 0 : waited + 1;
    if (waited <= spins_) {
      pause_briefly();
    } else if ((waited <= spins_ + kYields || !has_time) && !give_way()) {
      waited = spins_ + kYields;  // sleep if nothing has come by the next look
    }
    const bool sleeps = waited > spins_ + kYields && has_time && core_.sleep();
    // News that never ends, of operations of others, must not keep timers and connections from their turn.
    if (!sleeps && ++looks < (has_news ? kSpinsPerTurn : spins_per_turn_)) {
      continue;  // look again without a system call
    }
    looks = 0;
    const auto turned = core_.loop().turn(sleeps ? until : std::optional(Deadline(TimePoint())));
    core_.stay_awake();
    waited = sleeps ? 0 : waited;
    if (!turned.ok()) {
      core_.fail_loop(turned.error());
      return;
    }
  }
}

// Takes in all that has arrived, without waiting, and acts on it.
Result<void> EngineTurns::turn_once() {
  core_.take_in();
  if (auto turned = core_.loop().turn(Deadline(TimePoint())); !turned.ok()) {
    core_.fail_loop(turned.error());
    return turned;
  }
  core_.advance();
  return {};
}

}  // namespace hvd
