// How the engine launches operations on devices, and finishes them. See engine_impl.h and device_plane.h.
#include "runtime/engine/engine_impl.h"

namespace hvd {

void Engine::Impl::open_devices() {
  DevicePlane::Settings settings;
  settings.options = parts_.options.devices;
  settings.local_rank = parts_.map.local_rank;
  settings.start_limit = parts_.options.set_timeout;
  settings.stall = parts_.options.stall;
  devices_ = std::make_unique<DevicePlane>(
      std::move(settings), *parts_.log,
      [this](DeviceBatch batch, const Result<void>& result) { end_batch(std::move(batch), result); },
      [this] { wake(); });
}

DeviceExecutor::Host Engine::Impl::host_of(ProcessSet& set) {
  Backend& backend = set.backend != nullptr ? *set.backend : *parts_.backend;
  return DeviceExecutor::Host{set.executor->map(), set.executor->ranks(), backend, *set.executor};
}

// If a launch fails, part of it may run all the same and use the callers' memory. So it becomes a batch too, which ends
// with the job.
void Engine::Impl::launch(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops,
                          std::uint64_t known_at) {
  const std::uint64_t began = ticks_now();
  DeviceBatch batch;
  const auto launched = devices_->run(response.process_set, host_of(set), response, ops, batch, *this);
  if (launched.ok()) {
    count(*set.counters, ops, known_at, began);
  } else {
    batch.has_failed = true;
    fail_step(launched.error(), response, ops);
  }
  add_batch(ops, std::move(batch));
}

void Engine::Impl::add_batch(std::span<PendingOp* const> ops, DeviceBatch batch) {
  // A caller that learns of the end now may use the names again at once.
  batch.is_told = parts_.options.devices.completes_early && !batch.has_failed && batch.done != nullptr;
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;  // a stand-in, which this rank did not ask for
    }
    const OpKey key{op->what.process_set, op->what.name};
    if (batch.is_told) {
      queue_->forget(key);
    }
    batch.ops.push_back(std::move(pending_.extract(key).mapped()));
  }
  devices_->add_batch(std::move(batch));
}

// Thread: the plane's. The driver that waits for one of these operations may sleep.
void Engine::Impl::end_batch(DeviceBatch batch, const Result<void>& result) {
  if (result.ok() && is_traced()) {
    Timeline::Moment now(*timeline_);
    for (const OpRef& op : batch.ops) {
      const Submission& what = op->what;
      now.done({what.process_set, what.name}, what.kind, what.dtype, what.shape);
    }
  }
  batch.keeps.clear();
  for (const OpRef& op : batch.ops) {
    if (!batch.is_told) {
      queue_->forget(OpKey{op->what.process_set, op->what.name});
      op->finish(result);
    }
  }
  wake();
}

}  // namespace hvd
