// A phase of operations in the timeline, for as long as this lives. Nothing where there is no timeline, or it is off.
#pragma once

#include <span>
#include <string>

#include "runtime/engine/submit_queue.h"
#include "runtime/observe/timeline.h"

namespace hvd {

// Thread: engine only.
class OpsTrace {
 public:
  OpsTrace(Timeline* timeline, std::span<PendingOp* const> ops, TracePhase phase)
      : timeline_(timeline != nullptr && timeline->is_on() ? timeline : nullptr), ops_(ops), phase_(phase) {
    for (const PendingOp* op : timeline_ != nullptr ? ops_ : std::span<PendingOp* const>()) {
      timeline_->begin(key_of(op->what.process_set, op->what.name), op->what.kind, phase_);
    }
  }
  ~OpsTrace() {
    for (const PendingOp* op : timeline_ != nullptr ? ops_ : std::span<PendingOp* const>()) {
      timeline_->end(key_of(op->what.process_set, op->what.name), op->what.kind, phase_);
    }
  }
  OpsTrace(const OpsTrace&) = delete;
  OpsTrace& operator=(const OpsTrace&) = delete;

 private:
  Timeline* const timeline_;
  const std::span<PendingOp* const> ops_;
  const TracePhase phase_;
};

}  // namespace hvd
