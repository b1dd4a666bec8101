// Functions that begin a phase of operations in the timeline, which ends the phase before. They do nothing if there is
// no timeline, or if it is off.
#pragma once

#include <span>

#include "runtime/execute/pending_op.h"
#include "runtime/observe/timeline.h"

namespace hvd {

inline TraceKey trace_key(const Submission& what) {
  return {what.process_set, what.name};
}

// Thread: any.
inline void trace_phase(Timeline* timeline, std::span<PendingOp* const> ops, TracePhase phase) {
  if (timeline == nullptr || !timeline->is_on()) {
    return;
  }
  Timeline::Moment now(*timeline);
  for (const PendingOp* op : ops) {
    now.begin(trace_key(op->what), op->what.kind, phase);
  }
}

}  // namespace hvd
