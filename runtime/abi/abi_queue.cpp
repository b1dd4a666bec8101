// The functions of hvd.h that concern queues of ended operations. They check arguments and return statuses.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "hvd/hvd.h"
#include "runtime/abi/context.h"
#include "runtime/abi/fence.h"
#include "runtime/core/done_queue.h"

// Operations that were put share the queue's content, so that they may end after the queue is destroyed.
struct hvd_queue {
  std::shared_ptr<hvd::DoneQueue> done = std::make_shared<hvd::DoneQueue>();
};

extern "C" {

hvd_status hvd_queue_create(hvd_queue** out) {
  return hvd::fence([&]() -> hvd::Result<void> {
    if (out == nullptr) {
      return hvd::missing("hvd_queue_create: out");
    }
    *out = std::make_unique<hvd_queue>().release();
    return {};
  });
}

void hvd_queue_destroy(hvd_queue* queue) {
  const std::unique_ptr<hvd_queue> owned(queue);
}

hvd_status hvd_queue_put(hvd_queue* queue, hvd_ctx* ctx, int64_t handle) {
  return hvd::fence([&]() -> hvd::Result<void> {
    if (queue == nullptr) {
      return hvd::missing("hvd_queue_put: queue");
    }
    if (handle == 0) {
      queue->done->push(0);
      return {};
    }
    HVD_TRY_ASSIGN(const auto context, hvd::resolve(ctx));
    HVD_TRY_ASSIGN(const auto operation, context->find(handle));
    return operation->completion->tell([done = queue->done, handle](const hvd::Result<void>&) { done->push(handle); });
  });
}

hvd_status hvd_queue_next(hvd_queue* queue, double timeout_s, int64_t* handle) {
  return hvd::fence([&]() -> hvd::Result<void> {
    if (queue == nullptr || handle == nullptr) {
      return hvd::missing(queue == nullptr ? "hvd_queue_next: queue" : "hvd_queue_next: handle");
    }
    HVD_TRY(hvd::refuse_in_callback());
    if (!(timeout_s >= 0)) {
      return hvd::Error(hvd::Code::kInvalid, "hvd_queue_next: timeout_s is no number of seconds");
    }
    constexpr double kMaxSeconds = 1e9;
    const std::chrono::duration<double> seconds(std::min(timeout_s, kMaxSeconds));
    const auto deadline = hvd::Deadline::after(std::chrono::duration_cast<hvd::Duration>(seconds));
    const std::shared_ptr<hvd::DoneQueue> done = queue->done;
    const auto next = done->next(deadline);
    if (!next) {
      return hvd::Error(hvd::Code::kTimeout, "no operation has ended in time");
    }
    *handle = *next;
    return {};
  });
}

}  // extern "C"
