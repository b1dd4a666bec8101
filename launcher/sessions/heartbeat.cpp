#include "launcher/sessions/heartbeat.h"

#include <algorithm>
#include <utility>

#include "launcher/wire/messages.h"

namespace hvd::launch {

Heartbeat::Heartbeat(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)), last_heard_(loop.now()) {}

Heartbeat::~Heartbeat() {
  loop_.cancel(timer_);
}

void Heartbeat::begin(Duration interval) {
  interval_ = interval;
  hear();
  go_on();
}

void Heartbeat::pause() {
  loop_.cancel(timer_);
  timer_ = 0;
}

void Heartbeat::go_on() {
  // The last look comes at the very end of the node's time, and not up to an interval later.
  const Duration left = last_heard_ + patience() - loop_.now() + std::chrono::milliseconds(1);
  const Duration delay = left > Duration::zero() ? std::min(left, interval_) : interval_;
  due_ = loop_.now() + delay;
  timer_ = loop_.after(delay, [this] { beat(); });
}

void Heartbeat::beat() {
  timer_ = 0;
  if (loop_.now() - due_ > interval_) {
    hear();  // the delay is ours: this process was stopped (Ctrl-Z), or its machine was asleep
  }
  if (silence() > patience()) {
    sink_.on_silent(silence());
    return;
  }
  sink_.beat();
  go_on();
}

bool Heartbeat::is_in_touch() const {
  // Half an interval more: the answer is under way.
  return interval_ == Duration::zero() || silence() <= interval_ * 3 / 2;
}

Duration Heartbeat::patience() const {
  return interval_ * kMissedHeartbeats;
}

}  // namespace hvd::launch
