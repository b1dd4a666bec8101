// Completion is the future of one operation: the engine finishes it once, and any number of threads may wait for it.
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

// DeviceResult owns a result in a device's memory, until nobody refers to it. Thread: any.
class DeviceResult {
 public:
  virtual ~DeviceResult() = default;
  // The host must not read this address.
  [[nodiscard]] virtual void* data() const = 0;
  // Copies on the stream, after the work that the stream has by now; the result must be complete after that work. `to`
  // is memory of a device or of the host.
  virtual Result<void> copy_to(void* to, std::size_t size_bytes, void* stream) = 0;

 protected:
  DeviceResult() = default;
  DeviceResult(const DeviceResult&) = default;
  DeviceResult& operator=(const DeviceResult&) = default;
};

// DeviceTicket is the end, on the device, of an operation that was reported done when it was launched. Thread: any.
class DeviceTicket {
 public:
  virtual ~DeviceTicket() = default;
  // Work that is put on the stream from now on runs after the operation.
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
  std::shared_ptr<DeviceResult> device{};       // the result, if on a device; shared with what fills and copies it

  [[nodiscard]] void* address() const { return device != nullptr ? device->data() : data.get(); }

  // Returns uninitialised memory, or kResource. An allgather can ask for more memory than there is, and that must be an
  // error of this job instead of an exception on the engine's thread.
  static Result<OwnedOutput> allocate(std::size_t size_bytes, std::vector<std::int64_t> shape);
};

class Completion {
 public:
  Completion() = default;
  ~Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Call one of these, once.
  void finish(Result<void> result);
  void finish(OwnedOutput output);
  // Does the same for an operation that has only been launched on a device.
  void finish(std::optional<OwnedOutput> output, std::shared_ptr<DeviceTicket> ticket);

  // Calls `listener` once with the outcome, before any wait() for it returns. It runs on the thread that finishes the
  // operation, or on this thread if it has finished already. It must not wait or throw. kInvalid: there is a listener
  // already.
  using Listener = std::function<void(const Result<void>&)>;
  Result<void> tell(Listener listener);

  [[nodiscard]] bool is_done() const { return done_.load(std::memory_order_acquire); }
  // Blocks until finished.
  const Result<void>& wait() const;
  // Waits, but not beyond the deadline; returns whether it is done.
  bool wait_until(const Deadline& deadline) const;
  [[nodiscard]] bool has_listener() const;
  // Call it only after wait(). It is empty for most operations, which allocate nothing.
  [[nodiscard]] const std::optional<OwnedOutput>& output() const;
  // Call it only after wait(). It is null for most operations. It is shared with those that still wait for the device.
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
