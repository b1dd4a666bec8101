#include "runtime/front/step_watch.h"

#include <algorithm>
#include <system_error>
#include <thread>

#include "runtime/front/without_signals.h"

namespace hvd::front {

void StepWatch::begin(std::int64_t step) {
  const std::lock_guard lock(mu_);
  ++pending_[step];
}

void StepWatch::end(std::int64_t step, bool is_refused) {
  const std::lock_guard lock(mu_);
  const auto found = pending_.find(step);
  if (found == pending_.end()) {
    return;
  }
  const bool is_last = --found->second == 0;
  if (is_last) {
    pending_.erase(found);
  }
  if (is_last && numbers_ == Numbers::kUsedAgain) {
    failed_.erase(step);
    return;
  }
  // The step may have others that are about to be started.
  if (!is_refused || !failed_.emplace(step, Clock::now() + patience_).second) {
    return;
  }
  start_watching();
  has_failed_.notify_one();
}

// Where no thread can be had now, the next step that fails tries again; the others of this one wait for the stall
// check.
void StepWatch::start_watching() {
  if (is_watching_) {
    return;
  }
  const WithoutSignals blocked;
  try {
    std::thread([this] { watch(); }).detach();
    is_watching_ = true;
  } catch (const std::system_error&) {
  }
}

void StepWatch::watch() {
  std::unique_lock lock(mu_);
  while (true) {
    if (failed_.empty()) {
      has_failed_.wait(lock);
      continue;
    }
    const auto first = std::min_element(failed_.begin(), failed_.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    if (Clock::now() < first->second) {
      const auto until = first->second;  // a copy, as the map may change meanwhile
      has_failed_.wait_until(lock, until);
      continue;
    }
    const auto waiting = pending_.find(first->first);
    const int count = waiting == pending_.end() ? 0 : waiting->second;
    failed_.erase(first);
    if (count > 0) {
      lock.unlock();
      leave_(count);
      lock.lock();
    }
  }
}

}  // namespace hvd::front
