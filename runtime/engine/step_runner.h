// StepRunner runs the steps that all ranks have agreed on, one after the other: collectives on the host or on a device,
// and changes of process sets and buffers. It finishes this rank's operations.
// Thread: engine only.
#pragma once

#include <span>

#include "runtime/base/interrupt.h"
#include "runtime/coordinate/operation_trace.h"
#include "runtime/coordinate/pending_ops.h"
#include "runtime/coordinate/process_sets.h"
#include "runtime/coordinate/step_ring.h"
#include "runtime/engine/device_work.h"
#include "runtime/engine/job_ending.h"
#include "runtime/engine/shared_buffers.h"

namespace hvd {

class StepRunner {
 public:
  // Parts is what it works on, all of which outlives it.
  struct Parts {
    const RankMap& map;
    PendingOps& pending;
    ProcessSets& sets;
    SharedBuffers& buffers;
    DeviceWork& devices;
    OperationTrace& trace;
    JobEnding& ending;
    Interrupt& interrupt;  // ends a step that runs
  };
  explicit StepRunner(const Parts& parts) : parts_(parts) {}

  // A failure ends the job.
  void run(const Step& step);

 private:
  void run_response(const Response& response, std::uint64_t known_at);
  void run_ops(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops, std::uint64_t known_at);
  static void note_step(const ProcessSet& set);
  Result<void> change(const Response& response, PendingOp& op);
  void fail(const Error& error, const Response& response, std::span<PendingOp* const> ops);

  const Parts parts_;
};

}  // namespace hvd
