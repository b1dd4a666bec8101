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

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // With 0 bytes there is no memory, and data() is null.
  static Result<DeviceMemory> make(std::shared_ptr<Device> device, std::size_t size_bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(std::move(other.device_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // The host must not read this address.
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  DeviceMemory(std::shared_ptr<Device> device, void* data, std::size_t size_bytes)
      : device_(std::move(device)), data_(data), size_bytes_(size_bytes) {}

  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

class PinnedMemory {
 public:
  PinnedMemory() = default;
  // With 0 bytes there is no memory, and data() is null.
  static Result<PinnedMemory> make(std::shared_ptr<Device> device, std::size_t size_bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept
      : device_(std::move(other.device_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  PinnedMemory(std::shared_ptr<Device> device, void* data, std::size_t size_bytes)
      : device_(std::move(device)), data_(data), size_bytes_(size_bytes) {}

  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace hvd
