// Completion: what a caller waits on, one per operation. The engine finishes it once; any number of threads may wait.
//
// Thread: any (mutex mu_). What finish() stored is constant from then on, so readers after wait() need no lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd {

// Where a result is that lies in a device's memory, until nobody holds it. Thread: any.
class DeviceResult {
 public:
  virtual ~DeviceResult() = default;
  // Not for the host to look at.
  [[nodiscard]] virtual void* data() const = 0;
  // Behind what the device's stream does by now; it must be filled by then. `to`: memory of a device or of the host.
  virtual Result<void> copy_to(void* to, std::size_t size_bytes, void* stream) = 0;

 protected:
  DeviceResult() = default;
  DeviceResult(const DeviceResult&) = default;
  DeviceResult& operator=(const DeviceResult&) = default;
};

// The end on the device of an operation that was said to be done when it was launched. Thread: any.
class DeviceTicket {
 public:
  virtual ~DeviceTicket() = default;
  // What is put on the stream from here on runs after it.
  virtual Result<void> join(void* stream) = 0;

 protected:
  DeviceTicket() = default;
  DeviceTicket(const DeviceTicket&) = default;
  DeviceTicket& operator=(const DeviceTicket&) = default;
};

// Memory that the runtime allocated for an operation's result (allgather, reducescatter, alltoall), and its shape.
struct OwnedOutput {
  std::unique_ptr<std::byte[]> data;
  std::size_t size_bytes = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> received_splits{};  // alltoall: rows from each rank
  std::shared_ptr<DeviceResult> device{};       // where it is instead; shared with what fills and copies it

  [[nodiscard]] void* address() const { return device != nullptr ? device->data() : data.get(); }

  // Uninitialised memory, or kResource: an allgather can ask for more than there is, and that must be an error of
  // this job and not an exception on the engine's thread.
  static Result<OwnedOutput> allocate(std::size_t size_bytes, std::vector<std::int64_t> shape);
};

class Completion {
 public:
  Completion() = default;
  ~Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Once only.
  void finish(Result<void> result);
  void finish(OwnedOutput output);
  // The same for what is only launched on a device.
  void finish(std::optional<OwnedOutput> output, std::shared_ptr<DeviceTicket> ticket);

  // Has `listener` called once, with the outcome, before any wait() for it returns: on the thread that finishes, or on
  // this one when that has been. It must not wait for anything, and not throw. kInvalid: it has a listener already.
  using Listener = std::function<void(const Result<void>&)>;
  Result<void> tell(Listener listener);

  [[nodiscard]] bool is_done() const { return done_.load(std::memory_order_acquire); }
  // Blocks until finished.
  const Result<void>& wait() const;
  // The same, but not beyond the deadline; whether it is done.
  bool wait_until(const Deadline& deadline) const;
  [[nodiscard]] bool has_listener() const;
  // Only after wait(); nothing was allocated for most operations.
  [[nodiscard]] const std::optional<OwnedOutput>& output() const;
  // Only after wait(); null for most. Shared with those who still wait for the device.
  [[nodiscard]] const std::shared_ptr<DeviceTicket>& ticket() const;

 private:
  void settle(Result<void> result, std::optional<OwnedOutput> output, std::shared_ptr<DeviceTicket> ticket);

  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  std::atomic<bool> done_ = false;
  // guarded by mu_
  bool has_listener_ = false;
  Listener listener_;
  // written under mu_ before is_settled_, constant afterwards
  bool is_settled_ = false;
  Result<void> result_;
  std::optional<OwnedOutput> output_;
  std::shared_ptr<DeviceTicket> ticket_;
};

}  // namespace hvd
