// DevicePlane is everything of this rank that concerns its GPU: the device, the operations of the process sets on it,
// and the batches that are running there. Nothing is loaded or made before the first operation on a device, so that
// jobs on CPUs pay nothing.
//
// A rank uses one device: that of its first operation on one. Thread: engine only, except mark(), take_error() and
// abort().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/execute_device/device_executor.h"
#include "runtime/execute_device/device_finisher.h"
#include "runtime/execute_device/device_pool.h"
#include "runtime/execute_device/device_setup.h"

namespace hvd {

class DevicePlane {
 public:
  struct Settings {
    DeviceOptions options;
    Duration start_limit{};  // how long the ranks of a communicator may take to arrive
    StallOptions stall;
  };
  // `on_batch_end` and `wake` are called from the plane's own thread; wake() after an error, which take_error() then
  // returns.
  DevicePlane(Settings settings, Log& log, std::function<void(DeviceBatch, const Result<void>&)> on_batch_end,
              std::function<void()> wake);
  ~DevicePlane();
  DevicePlane(const DevicePlane&) = delete;
  DevicePlane& operator=(const DevicePlane&) = delete;

  // Records, on their streams, the point at which those operations of `ops` that are on a device are ready. Thread: the
  // submitting one. kInvalid: the device is not this rank's, or a graph is being captured from the stream.
  Result<void> mark(std::span<const OpRef> ops);
  // Launches a response of the set. The caller must pass the batch, with its operations, to add_batch() in any case.
  Result<void> run(int process_set, const DeviceExecutor::Host& host, const Response& response,
                   std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt);
  void add_batch(DeviceBatch batch);

  // Adds a new process set; every rank of the job calls it. `host` is empty if this rank is not a member. If all ranks
  // share a communicator, the set's communicator is split from it.
  Result<void> add_set(int process_set, const std::optional<DeviceExecutor::Host>& host, Interrupt& interrupt);
  Result<void> remove_set(int process_set, Interrupt& interrupt);

  // Returns the first failure on the device since the last call. Thread: any.
  std::optional<Error> take_error();
  // The job is over for this cause. Thread: any.
  void abort(const Error& cause);
  // Waits for what is running and ends everything; what does not end in time fails with `cause`.
  void close(Duration limit, const Error& cause);

 private:
  Result<std::shared_ptr<DevicePool>> pool_of(int ordinal);
  // Returns this rank's device if it has one by now; otherwise one to use for stand-ins.
  Result<std::shared_ptr<DevicePool>> any_pool();
  Result<DeviceExecutor*> executor_of(int process_set, const DeviceExecutor::Host& host, Interrupt& interrupt);
  Result<std::unique_ptr<DeviceExecutor>> make_executor(const DeviceExecutor::Host& host, Interrupt& interrupt);
  Result<std::shared_ptr<NcclComm>> split(const std::optional<DeviceExecutor::Host>& host, Interrupt& interrupt);
  void tell(const std::string& notice, const DeviceExecutor::Host& host);
  // For as long as the result lives, this thread's calls do not disturb a CUDA graph that the program captures. Any
  // thread of the program may run the engine.
  std::optional<RelaxedCapture> ignore_captures();
  void leave_all_behind();

  // constant after construction
  const Settings settings_;
  Log& log_;
  const std::function<void()> wake_;
  // guarded by mu_
  std::mutex mu_;
  std::shared_ptr<DevicePool> pool_;  // of this rank's device; shared with the memory and events that it has given out
  std::optional<Error> error_;
  // guarded by marks_mu_, which the engine never waits for: a thread that has it may block in the driver, where the
  // program's stream is full
  std::mutex marks_mu_;
  std::uint64_t last_serial_ = 0;
  // engine only
  std::optional<Result<std::shared_ptr<const NcclLibrary>>> nccl_;  // set after the search for NCCL
  std::map<int, std::unique_ptr<DeviceExecutor>> executors_;        // by process set
  bool has_told_ = false;                                           // has reported that GPU tensors go through the host
  bool has_told_of_memory_ = false;                                 // has reported that NCCL refused memory
  bool has_let_go_ = true;                                          // the device has stopped by the end
  DeviceFinisher finisher_;
};

}  // namespace hvd
