#include "launcher/sessions/return_attempts.h"

#include <algorithm>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// These limit one attempt at a new connection, and the waits between attempts. An attempt ends after kAttemptTime even
// in a network that drops packets silently.
constexpr Duration kAttemptTime = std::chrono::seconds(20);
constexpr Duration kLeastAttempt = std::chrono::seconds(1);
constexpr Duration kFirstWait = std::chrono::milliseconds(500);
constexpr Duration kLongestWait = std::chrono::seconds(4);

}  // namespace

ReturnAttempts::ReturnAttempts(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)) {}

ReturnAttempts::~ReturnAttempts() {
  loop_.cancel(timer_);
}

void ReturnAttempts::begin(const Error& why) {
  why_ = why;
  since_ = loop_.now();
  failed_ = 0;
}

void ReturnAttempts::try_in(Duration delay) {
  loop_.cancel(timer_);
  timer_ = loop_.after(delay, [this] { attempt(); });
}

void ReturnAttempts::attempt() {
  const Duration patience = std::clamp(limit_ - away(), kLeastAttempt, kAttemptTime);
  timer_ = loop_.after(patience, [this, patience] {
    timer_ = 0;
    fail(Error(Code::kTimeout, "no answer within " + duration_text(patience)));
  });
  sink_.on_attempt();
}

void ReturnAttempts::fail(const Error& why) {
  const Duration gone = away();
  if (gone >= limit_) {
    stop();
    return sink_.on_over(Error(
        Code::kLostPeer, why_.message() + "; not reached again within " + duration_text(gone) + ": " + why.message()));
  }
  sink_.on_failed(why);
  const Duration wait = std::min(kLongestWait, kFirstWait * (1 << std::min(failed_++, 4)));
  try_in(std::min(wait, limit_ - gone));
}

void ReturnAttempts::stop() {
  loop_.cancel(timer_);
  timer_ = 0;
}

}  // namespace hvd::launch
