// DevicePlane: everything of this rank that is about its GPU: the device, what the process sets do on it, and what is
// under way there. Nothing is loaded or made before the first operation on a device.
//
// A rank has one device: that of its first operation on one. Thread: engine only, but for mark(), take_error() and
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
    int local_rank = 0;
    Duration start_limit{};  // for the ranks of a communicator to come
    StallOptions stall;
  };
  // `on_landed` and `wake`: from a thread of the plane's own; wake() after an error that take_error() then gives.
  DevicePlane(Settings settings, Log& log, std::function<void(Flight, const Result<void>&)> on_landed,
              std::function<void()> wake);
  ~DevicePlane();
  DevicePlane(const DevicePlane&) = delete;
  DevicePlane& operator=(const DevicePlane&) = delete;

  // Notes on their streams where those operations of `ops` that lie on a device are ready. Thread: who submits them.
  // kInvalid: another device than this rank's, or a stream that a graph is captured from.
  Result<void> mark(std::span<const OpRef> ops);
  // Launches a response of the set. The flight is to be taken off in any case, with the operations.
  Result<void> run(int process_set, const DeviceExecutor::Host& host, const Response& response,
                   std::span<PendingOp* const> ops, Flight& flight, Interrupt& interrupt);
  void take_off(Flight flight);

  // A new process set, on every rank of the job; `index`: of this rank in it, -1: not a member. Where all ranks have a
  // communicator the set's is split from it.
  Result<void> add_set(int process_set, const std::optional<DeviceExecutor::Host>& host, Interrupt& interrupt);
  Result<void> remove_set(int process_set, Interrupt& interrupt);

  // What has failed on the device since the last call. Thread: any.
  std::optional<Error> take_error();
  // The job is over for this cause. Thread: any.
  void abort(const Error& cause);
  // Waits for what is under way, and ends everything; what is not done in time fails with `cause`.
  void close(Duration limit, const Error& cause);

 private:
  Result<std::shared_ptr<DevicePool>> pool_of(int ordinal);
  // This rank's device if it has one by now; else one to stand in with.
  Result<std::shared_ptr<DevicePool>> any_pool();
  Result<DeviceExecutor*> executor_of(int process_set, const DeviceExecutor::Host& host, Interrupt& interrupt);
  Result<std::unique_ptr<DeviceExecutor>> make_executor(const DeviceExecutor::Host& host, Interrupt& interrupt);
  Result<std::shared_ptr<NcclComm>> split(const std::optional<DeviceExecutor::Host>& host, Interrupt& interrupt);
  void tell(const std::string& notice, const DeviceExecutor::Host& host);
  void ignore_captures();
  void leave_all_behind();

  // constant after construction
  const Settings settings_;
  Log& log_;
  const std::function<void()> wake_;
  // guarded by mu_
  std::mutex mu_;
  std::shared_ptr<DevicePool> pool_;  // of this rank's device; shared with what it has given out
  std::uint64_t last_serial_ = 0;
  std::optional<Error> error_;
  // engine only
  std::optional<Result<std::shared_ptr<const NcclLibrary>>> nccl_;  // once it was looked for
  std::map<int, std::unique_ptr<DeviceExecutor>> executors_;        // by process set
  bool has_told_ = false;                                           // that GPUs' tensors go through the host
  bool has_told_of_memory_ = false;                                 // that NCCL refused memory
  bool has_let_go_ = true;                                          // the device, by the end
  DeviceFinisher finisher_;
};

}  // namespace hvd
