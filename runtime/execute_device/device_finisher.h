// DeviceFinisher waits for the end of what was launched on a device, so that no other thread has to, and watches NCCL
// for errors meanwhile. It checks only the first batch of each stream, since later ones cannot end before it. It never
// blocks in the driver.
//
// If the job ends with an error, it aborts the communicators, so that the device stops waiting for other ranks. Then
// every batch that is still running fails with that error, even if the device does not stop in time. Thread: any (mutex
// mu_); the class starts its own thread with the first batch.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/interrupt.h"
#include "runtime/device/stream.h"
#include "runtime/execute/submit_queue.h"
#include "runtime/nccl/nccl_comm.h"
#include "runtime/observe/stall_watch.h"

namespace hvd {

// DeviceBatch is a batch of operations that were launched together, until they end on the device.
struct DeviceBatch {
  std::vector<OpRef> ops;
  int process_set = 0;
  bool is_told = false;                      // the operations are reported done at launch; then done is not null
  bool has_failed = false;                   // not all of it could be launched, so it ends with the job
  StreamHandle stream = nullptr;             // the stream of the batch
  std::shared_ptr<Event> done;               // after what was launched; null: nothing was
  std::shared_ptr<NcclComm> comm;            // null: the batch uses no NCCL
  std::vector<std::shared_ptr<void>> keeps;  // the memory that it works on, kept alive until it ends
  TimePoint since{};                         // in the finisher's time
};

class DeviceFinisher {
 public:
  struct Handlers {
    std::function<void()> on_start;  // called first on the finisher's thread
    // called on the finisher's thread when a batch has ended
    std::function<void(DeviceBatch, const Result<void>&)> on_batch_end;
    std::function<void(const Error&)> on_error;  // likewise: a failure that ends the job
  };
  DeviceFinisher(Handlers handlers, StallOptions stall) : handlers_(std::move(handlers)), stall_(stall) {}
  ~DeviceFinisher();
  DeviceFinisher(const DeviceFinisher&) = delete;
  DeviceFinisher& operator=(const DeviceFinisher&) = delete;

  void add(DeviceBatch batch);
  // Adds a communicator to abort when the job ends. It is shared, since the job may end while another thread makes or
  // uses it.
  void watch(std::shared_ptr<NcclComm> comm);
  void unwatch(const std::shared_ptr<NcclComm>& comm);
  // The job is over: do not wait for anything any more. Only the first cause counts.
  void abort(const Error& cause);
  // Waits until at most `left` batches are running, of all process sets together.
  Result<void> drain(std::size_t left, Interrupt& interrupt);
  // Waits until no batch is running, then ends the thread; at the deadline, and after an error, it acts as abort().
  // Call it once. False means that the device or NCCL still works on something that was aborted. Its memory must then
  // not be freed, since freeing would wait for it.
  [[nodiscard]] bool close(Deadline deadline, const Error& cause);

 private:
  void start();  // starts the thread unless it runs; mutex held
  void run();
  // These run with the mutex held, and release it while they call others.
  bool look(std::unique_lock<std::mutex>& lock);
  void end_batch(std::unique_lock<std::mutex>& lock, std::deque<DeviceBatch>::iterator at, const Result<void>& result);
  void end_all(std::unique_lock<std::mutex>& lock);
  void tell(std::unique_lock<std::mutex>& lock, const Error& error);
  void look_for_errors(std::unique_lock<std::mutex>& lock);
  void look_for_stalls(std::unique_lock<std::mutex>& lock, TimePoint now);

  // constant after construction
  const Handlers handlers_;
  const StallOptions stall_;
  // guarded by mu_
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<DeviceBatch> batches_;  // in the order in which they were launched
  std::vector<std::shared_ptr<NcclComm>> comms_;
  std::optional<Error> cause_;  // set when the job is over
  bool has_told_ = false;       // on_error was called
  bool has_let_go_ = true;      // everything that was aborted has stopped
  bool is_closing_ = false;
  TimePoint next_errors_{};
  WatchedTime time_{std::chrono::seconds(1)};  // the clock that measures the age of a batch
  std::thread thread_;
};

}  // namespace hvd
