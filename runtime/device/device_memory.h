// DeviceMemory and PinnedMemory own memory that Device allocates. They are move-only, and each keeps the device alive.
// All work on the memory must be done before its owner is destroyed. Thread: any, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/result.h"
#include "runtime/device/device.h"

namespace hvd {

// MemoryOfDevice owns memory that a device allocates and releases by these functions; data() points to `Byte`.
template <typename Byte, Result<void*> (Device::*kAllocate)(std::size_t), void (Device::*kRelease)(void*)>
class MemoryOfDevice {
 public:
  MemoryOfDevice() = default;
  // With 0 bytes there is no memory, and data() is null.
  static Result<MemoryOfDevice> make(std::shared_ptr<Device> device, std::size_t size_bytes) {
    MemoryOfDevice made;
    if (size_bytes > 0) {
      HVD_TRY_ASSIGN(void* data, (device.get()->*kAllocate)(size_bytes));
      made.owned_ = {std::move(device), data};
      made.size_bytes_ = size_bytes;
    }
    return made;
  }

  [[nodiscard]] Byte* data() const { return static_cast<Byte*>(owned_.handle()); }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  Owned<void*, kRelease> owned_;
  std::size_t size_bytes_ = 0;
};

// The host must not read its address.
using DeviceMemory = MemoryOfDevice<void, &Device::allocate, &Device::free_memory>;
using PinnedMemory = MemoryOfDevice<std::uint8_t, &Device::allocate_pinned, &Device::free_pinned>;

}  // namespace hvd
