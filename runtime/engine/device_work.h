// DeviceWork gives the device plane (execute_device/device_plane.h) what this rank's process sets ask it to do, and
// finishes the operations when the device has ended them.
// Thread: engine only, except end_batch(), which the plane's own thread calls.
#pragma once

#include <functional>
#include <span>

#include "runtime/base/interrupt.h"
#include "runtime/coordinate/operation_trace.h"
#include "runtime/coordinate/pending_ops.h"
#include "runtime/coordinate/process_sets.h"
#include "runtime/execute_device/device_plane.h"

namespace hvd {

class DeviceWork {
 public:
  // Parts is what it works on, all of which outlives it.
  struct Parts {
    SubmitQueue& queue;
    PendingOps& pending;
    ProcessSets& sets;
    OperationTrace& trace;
    Log& log;
  };
  // `wake` wakes the thread that runs the engine. Thread of the call: any.
  DeviceWork(DevicePlane::Settings settings, const Parts& parts, std::function<void()> wake);

  // Launches a response of this set. The caller passes the batch to add_batch() in any case: if this fails, part of it
  // may run all the same and use the callers' memory.
  Result<void> launch(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops,
                      std::uint64_t known_at, DeviceBatch& batch, Interrupt& interrupt);
  // Hands the operations over to the device plane, which may end them at once; a batch that has failed ends with the
  // job.
  void add_batch(std::span<PendingOp* const> ops, DeviceBatch batch);
  // Adds a new process set; every rank of the job calls it.
  Result<void> add_set(int number, ProcessSet& set, Interrupt& interrupt);
  [[nodiscard]] DevicePlane& plane() { return plane_; }

 private:
  [[nodiscard]] DeviceExecutor::Host host_of(ProcessSet& set);
  void end_batch(DeviceBatch batch, const Result<void>& result);

  const Parts parts_;
  const std::function<void()> wake_;
  const bool completes_early_;
  DevicePlane plane_;
};

}  // namespace hvd
