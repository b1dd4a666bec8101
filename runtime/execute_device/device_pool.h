// DevicePool: events and memory of a device, kept for the next who needs them: to make and to destroy them costs, and
// the driver waits for the whole device where memory is freed.
//
// Thread: any (mutex mu_).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/completion.h"
#include "runtime/device/device.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/stream.h"

namespace hvd {

class DevicePool;

// Memory of the pool's. Whoever reads or writes it on a stream that nobody waits for says so by used_by().
class DeviceBlock final : public DeviceResult {
 public:
  DeviceBlock(std::shared_ptr<Device> device, DeviceMemory memory, std::weak_ptr<DevicePool> pool)
      : device_(std::move(device)), memory_(std::move(memory)), pool_(std::move(pool)) {}

  [[nodiscard]] void* data() const override { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const { return memory_.size_bytes(); }
  Result<void> copy_to(void* to, std::size_t size_bytes, void* stream) override;
  // Until what is on the stream by now is done it is in use, also when nobody holds it any more.
  Result<void> used_by(StreamHandle stream);

 private:
  friend class DevicePool;

  const std::shared_ptr<Device> device_;
  const DeviceMemory memory_;
  const std::weak_ptr<DevicePool> pool_;
  std::mutex mu_;
  std::vector<std::shared_ptr<Event>> users_;  // guarded by mu_. Shared with the pool, to which they go back
};

class DevicePool final : public std::enable_shared_from_this<DevicePool> {
 public:
  static std::shared_ptr<DevicePool> make(std::shared_ptr<Device> device);
  ~DevicePool() = default;
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Goes back when the last who has it lets go.
  Result<std::shared_ptr<Event>> event();
  // One that is recorded now.
  Result<std::shared_ptr<Event>> event_on(StreamHandle stream);
  // At least that many bytes (0: one has an address all the same), to be used on this stream. Goes back likewise.
  Result<std::shared_ptr<DeviceBlock>> block(std::size_t size_bytes, StreamHandle stream);

  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }

 private:
  explicit DevicePool(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  std::unique_ptr<DeviceBlock> take_free(std::size_t size_bytes);
  void put(std::unique_ptr<DeviceBlock> block);

  // constant after construction
  const std::shared_ptr<Device> device_;
  // guarded by mu_
  std::mutex mu_;
  std::vector<std::unique_ptr<Event>> events_;
  std::multimap<std::size_t, std::unique_ptr<DeviceBlock>> blocks_;  // by their sizes
};

}  // namespace hvd
