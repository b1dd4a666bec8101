#include "runtime/device/stream.h"

namespace hvd {

Result<Stream> Stream::make(std::shared_ptr<Device> device) {
  HVD_TRY_ASSIGN(const StreamHandle handle, device->make_stream());
  return Stream(std::move(device), handle);
}

Stream::~Stream() {
  if (handle_ != nullptr) {
    device_->destroy_stream(handle_);
  }
}

Stream& Stream::operator=(Stream&& other) noexcept {
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
