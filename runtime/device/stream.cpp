#include "runtime/device/stream.h"

namespace hvd {

Result<DeviceStream> DeviceStream::make(std::shared_ptr<Device> device) {
  HVD_TRY_ASSIGN(const StreamHandle handle, device->make_stream());
  return DeviceStream(std::move(device), handle);
}

DeviceStream::~DeviceStream() {
  if (handle_ != nullptr) {
    device_->destroy_stream(handle_);
  }
}

DeviceStream& DeviceStream::operator=(DeviceStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

Result<Event> Event::make(std::shared_ptr<Device> device, bool is_timed) {
  HVD_TRY_ASSIGN(const EventHandle handle, device->make_event(is_timed));
  return Event(std::move(device), handle);
}

Event::~Event() {
  if (handle_ != nullptr) {
    device_->destroy_event(handle_);
  }
}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

}  // namespace hvd
