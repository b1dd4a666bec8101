// DevicePool keeps events and memory of a device for the next user. Creating and destroying them is slow, and the
// driver waits for the whole device when memory is freed.
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

// DeviceBlock is memory of the pool. Code that reads or writes it on a stream for which no thread waits must call
// used_by().
class DeviceBlock final : public DeviceResult {
 public:
  DeviceBlock(std::shared_ptr<Device> device, DeviceMemory memory, std::weak_ptr<DevicePool> pool)
      : device_(std::move(device)), memory_(std::move(memory)), pool_(std::move(pool)) {}

  [[nodiscard]] void* data() const override { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const { return memory_.size_bytes(); }
  Result<void> copy_to(void* to, std::size_t size_bytes, void* stream) override;
  // Keeps the block in use until the work that the stream has by now is done, even if nobody refers to the block any
  // more.
  Result<void> used_by(StreamHandle stream);

 private:
  friend class DevicePool;

  const std::shared_ptr<Device> device_;
  const DeviceMemory memory_;
  const std::weak_ptr<DevicePool> pool_;
  std::mutex mu_;
  std::vector<std::shared_ptr<Event>> users_;  // guarded by mu_. Shared with the pool, to which they return
};

class DevicePool final : public std::enable_shared_from_this<DevicePool> {
 public:
  static std::shared_ptr<DevicePool> make(std::shared_ptr<Device> device);
  ~DevicePool() = default;
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Returns an event; it goes back to the pool when its last owner releases it.
  Result<std::shared_ptr<Event>> event();
  // Returns an event that is recorded now.
  Result<std::shared_ptr<Event>> event_on(StreamHandle stream);
  // Returns a block of at least this many bytes (0 still gives an address), for use on this stream. It goes back
  // likewise.
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
  std::multimap<std::size_t, std::unique_ptr<DeviceBlock>> blocks_;  // by size
};

}  // namespace hvd
