#include "runtime/engine/device_work.h"

namespace hvd {

DeviceWork::DeviceWork(DevicePlane::Settings settings, const Parts& parts, std::function<void()> wake)
    : parts_(parts),
      wake_(std::move(wake)),
      completes_early_(settings.options.completes_early),
      plane_(
          std::move(settings), parts.log,
          [this](DeviceBatch batch, const Result<void>& result) { end_batch(std::move(batch), result); }, wake_) {}

DeviceExecutor::Host DeviceWork::host_of(ProcessSet& set) {
  return {set.executor->map(), set.executor->ranks(), parts_.sets.backend_of(set), *set.executor};
}

Result<void> DeviceWork::launch(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops,
                                std::uint64_t known_at, DeviceBatch& batch, Interrupt& interrupt) {
  const std::uint64_t began = ticks_now();
  auto launched = plane_.run(response.process_set, host_of(set), response, ops, batch, interrupt);
  if (launched.ok()) {
    count_step(*set.counters, ops, known_at, began);
  }
  batch.has_failed = !launched.ok();
  return launched;
}

void DeviceWork::add_batch(std::span<PendingOp* const> ops, DeviceBatch batch) {
  // A caller that learns of the end now may use the names again at once.
  batch.is_told = completes_early_ && !batch.has_failed && batch.done != nullptr;
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;  // a stand-in, which this rank did not ask for
    }
    if (batch.is_told) {
      parts_.queue.forget(OpKey{op->what.process_set, op->what.name});
    }
    batch.ops.push_back(parts_.pending.hand_over(*op));
  }
  plane_.add_batch(std::move(batch));
}

// The driver that waits for one of these operations may sleep.
void DeviceWork::end_batch(DeviceBatch batch, const Result<void>& result) {
  if (result.ok() && parts_.trace.is_on()) {
    parts_.trace.end(std::span<const OpRef>(batch.ops));
  }
  batch.keeps.clear();
  for (const OpRef& op : batch.ops) {
    if (!batch.is_told) {
      parts_.queue.forget(OpKey{op->what.process_set, op->what.name});
      op->finish(result);
    }
  }
  wake_();
}

Result<void> DeviceWork::add_set(int number, ProcessSet& set, Interrupt& interrupt) {
  return plane_.add_set(number, set.executor ? std::optional(host_of(set)) : std::nullopt, interrupt);
}

}  // namespace hvd
