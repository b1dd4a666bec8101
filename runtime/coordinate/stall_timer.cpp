#include "runtime/coordinate/stall_timer.h"

#include <algorithm>

namespace hvd {
namespace {

constexpr unsigned kDecisionsPerLook = 1024;

}  // namespace

StallTimer::StallTimer(StallOptions options, EventLoop& loop, const Coordinator& coordinator, AnswerCalls& calls,
                       Log& log, std::function<void(const Error&)> on_end)
    : loop_(loop), coordinator_(coordinator), calls_(calls), log_(log), on_end_(std::move(on_end)), watch_(options) {}

void StallTimer::arm() {
  if (timer_ == 0 && !is_stopped_ && (coordinator_.has_incomplete() || calls_.has_any(clock_.now()))) {
    timer_ = loop_.after(std::max(Duration::zero(), next_look_ - clock_.now()), [this] {
      timer_ = 0;
      look();
    });
  }
}

// A timer that is due is left to run. Otherwise the keeper that it woke would be woken again and again, and never look.
void StallTimer::disarm() {
  if (timer_ != 0 && clock_.now() < next_look_) {
    loop_.cancel(timer_);
    timer_ = 0;
  }
}

void StallTimer::count_decision() {
  if (++decisions_ % kDecisionsPerLook == 0) {
    look();
  }
}

void StallTimer::look() {
  const TimePoint now = clock_.now();
  if (now < next_look_ || is_stopped_) {
    return;
  }
  next_look_ = now + watch_.period();
  std::vector<Incomplete> incomplete = coordinator_.incomplete();
  calls_.add_to(incomplete, coordinator_, now);
  const StallWatch::Finding finding = watch_.look(now, incomplete);
  if (!finding.warning.empty()) {
    log_.write(LogLevel::kWarning, finding.warning);
  }
  if (finding.end) {
    on_end_(Error(Code::kTimeout, *finding.end));
  }
}

}  // namespace hvd
