// DeviceStream and Event own what Device makes. They are move-only, and each keeps the device alive. Thread: any, one
// at a time.
#pragma once

#include <memory>
#include <utility>

#include "runtime/base/result.h"
#include "runtime/device/device.h"

namespace hvd {

class DeviceStream {
 public:
  DeviceStream() = default;
  static Result<DeviceStream> make(std::shared_ptr<Device> device);
  ~DeviceStream();
  DeviceStream(DeviceStream&& other) noexcept
      : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}
  DeviceStream& operator=(DeviceStream&& other) noexcept;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  [[nodiscard]] StreamHandle handle() const { return handle_; }
  // See Device::synchronize.
  Result<void> synchronize() { return device_->synchronize(handle_); }

 private:
  DeviceStream(std::shared_ptr<Device> device, StreamHandle handle) : device_(std::move(device)), handle_(handle) {}

  std::shared_ptr<Device> device_;
  StreamHandle handle_ = nullptr;
};

// Event is a point on a stream. One that has never been recorded counts as done.
class Event {
 public:
  Event() = default;
  static Result<Event> make(std::shared_ptr<Device> device, bool is_timed = false);
  ~Event();
  Event(Event&& other) noexcept : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] EventHandle handle() const { return handle_; }
  Result<void> record(StreamHandle stream) { return device_->record(handle_, stream); }
  Result<bool> is_done() const { return device_->is_done(handle_); }
  // Blocks the host.
  Result<void> wait_on_host() const { return device_->wait_on_host(handle_); }

 private:
  Event(std::shared_ptr<Device> device, EventHandle handle) : device_(std::move(device)), handle_(handle) {}

  std::shared_ptr<Device> device_;
  EventHandle handle_ = nullptr;
};

}  // namespace hvd
