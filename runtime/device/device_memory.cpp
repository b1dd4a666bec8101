#include "runtime/device/device_memory.h"

namespace hvd {

Result<DeviceMemory> DeviceMemory::make(std::shared_ptr<Device> device, std::size_t size_bytes) {
  if (size_bytes == 0) {
    return DeviceMemory();
  }
  HVD_TRY_ASSIGN(void* data, device->allocate(size_bytes));
  return DeviceMemory(std::move(device), data, size_bytes);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) {
    device_->free_memory(data_);
  }
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

Result<PinnedMemory> PinnedMemory::make(std::shared_ptr<Device> device, std::size_t size_bytes) {
  if (size_bytes == 0) {
    return PinnedMemory();
  }
  HVD_TRY_ASSIGN(void* data, device->allocate_pinned(size_bytes));
  return PinnedMemory(std::move(device), data, size_bytes);
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) {
    device_->free_pinned(data_);
  }
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

}  // namespace hvd
