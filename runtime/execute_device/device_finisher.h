// DeviceFinisher: waits for what was launched on a device, without making anybody else wait, and watches over NCCL
// meanwhile. It looks at the first of each stream only, since what is behind that cannot be done before; it never
// blocks in the driver.
//
// When the job ends for a cause it aborts the communicators, so that the device lets go, and then everything that is
// under way fails with that cause; also where the device does not let go in time. Thread: any (mutex mu_), with one of
// its own, which starts with the first flight.
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

// Operations that were launched together, until their end on the device.
struct Flight {
  std::vector<OpRef> ops;
  int process_set = 0;
  bool is_told = false;                      // those who wait are told at once; done is not null then
  bool has_failed = false;                   // not all of it could be launched: it ends with the job
  StreamHandle stream = nullptr;             // on which it was
  std::shared_ptr<Event> done;               // behind what was launched; null: nothing was
  std::shared_ptr<NcclComm> comm;            // null: without
  std::vector<std::shared_ptr<void>> keeps;  // memory that it works on, whoever else has it
  TimePoint since{};                         // of the finisher's time
};

class DeviceFinisher {
 public:
  struct Handlers {
    std::function<void()> on_start;                              // from the thread here, first
    std::function<void(Flight, const Result<void>&)> on_landed;  // from the thread here
    std::function<void(const Error&)> on_error;                  // likewise: something has failed that ends the job
  };
  DeviceFinisher(Handlers handlers, StallOptions stall) : handlers_(std::move(handlers)), stall_(stall) {}
  ~DeviceFinisher();
  DeviceFinisher(const DeviceFinisher&) = delete;
  DeviceFinisher& operator=(const DeviceFinisher&) = delete;

  void add(Flight flight);
  // Communicators that are to be aborted when the job ends. Shared, since that may be while they are made or used.
  void watch(std::shared_ptr<NcclComm> comm);
  void unwatch(const std::shared_ptr<NcclComm>& comm);
  // The job is over: nothing is waited for any more. The first cause counts.
  void abort(const Error& cause);
  // Until nothing of the process set is under way.
  Result<void> drain(int process_set, Interrupt& interrupt);
  // Until nothing is; at the deadline, and after an error, as abort(). Ends the thread. Once. False: the device, or
  // NCCL, is still at something that was aborted; what it may use is not to be given back, since that would wait for
  // it.
  [[nodiscard]] bool close(Deadline deadline, const Error& cause);

 private:
  void start();  // under the lock; the thread, unless it is there
  void run();
  // Under the lock, which they give up while they call others.
  bool look(std::unique_lock<std::mutex>& lock);
  void land(std::unique_lock<std::mutex>& lock, std::deque<Flight>::iterator at, const Result<void>& result);
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
  std::deque<Flight> flights_;  // in the order in which they were launched
  std::vector<std::shared_ptr<NcclComm>> comms_;
  std::optional<Error> cause_;  // the job is over
  bool has_told_ = false;       // on_error was called
  bool has_let_go_ = true;      // all that was aborted
  bool is_closing_ = false;
  TimePoint next_errors_{};
  WatchedTime time_{std::chrono::seconds(1)};  // by which the age of a flight counts
  std::thread thread_;
};

}  // namespace hvd
