#include "runtime/observe/counters.h"

namespace hvd {

void SetCounters::add(const Step& step) {
  raise(operations_, step.operations);
  raise(steps_, 1);
  raise(bytes_, step.bytes);
  activity_->add({step.kind, step.operations, step.bytes, step.asked_at, step.known_at, step.ended_at});
  raise(negotiate_ticks_, step.negotiate_ticks);
  raise(wait_ticks_, step.wait_ticks);
  raise(move_ticks_, step.move_ticks);
}

CounterValues SetCounters::read(double seconds_per_tick) const {
  const auto count = [](const Count& value) { return value.load(std::memory_order_relaxed); };
  const auto seconds = [&](const Count& ticks) { return static_cast<double>(count(ticks)) * seconds_per_tick; };
  CounterValues values;
  values.operations = count(operations_) + count(quick_operations_);
  values.failures = count(failures_);
  values.steps = count(steps_) + count(quick_operations_);
  values.requests = count(requests_);
  values.known = count(known_);
  values.bytes = count(bytes_) + count(quick_bytes_);
  values.negotiate_s = seconds(negotiate_ticks_);
  values.wait_s = seconds(wait_ticks_);
  values.move_s = seconds(move_ticks_);
  return values;
}

std::shared_ptr<SetCounters> Counters::of(int process_set) {
  const std::lock_guard lock(mu_);
  auto& set = sets_[process_set];
  if (set == nullptr) {
    set = std::make_shared<SetCounters>(activity_);
  }
  return set;
}

void Counters::remove(int process_set) {
  const std::lock_guard lock(mu_);
  sets_.erase(process_set);
}

std::optional<CounterValues> Counters::read(int process_set) const {
  const double seconds_per_tick = scale_.seconds_per_tick();
  const std::lock_guard lock(mu_);
  const auto found = sets_.find(process_set);
  return found == sets_.end() ? std::nullopt : std::optional(found->second->read(seconds_per_tick));
}

}  // namespace hvd
