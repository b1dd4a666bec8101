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
  static Result<DeviceStream> make(std::shared_ptr<Device> device) {
    HVD_TRY_ASSIGN(const StreamHandle handle, device->make_stream());
    return DeviceStream({std::move(device), handle});
  }

  [[nodiscard]] StreamHandle handle() const { return owned_.handle(); }
  // See Device::synchronize.
  Result<void> synchronize() { return owned_.device().synchronize(handle()); }

 private:
  using Stream = Owned<StreamHandle, &Device::destroy_stream>;
  explicit DeviceStream(Stream owned) : owned_(std::move(owned)) {}

  Stream owned_;
};

// Event is a point on a stream. One that has never been recorded counts as done.
class Event {
 public:
  Event() = default;
  static Result<Event> make(std::shared_ptr<Device> device, bool is_timed = false) {
    HVD_TRY_ASSIGN(const EventHandle handle, device->make_event(is_timed));
    return Event({std::move(device), handle});
  }

  [[nodiscard]] EventHandle handle() const { return owned_.handle(); }
  Result<void> record(StreamHandle stream) { return owned_.device().record(handle(), stream); }
  Result<bool> is_done() const { return owned_.device().is_done(handle()); }
  // Blocks the host.
  Result<void> wait_on_host() const { return owned_.device().wait_on_host(handle()); }

 private:
  using Point = Owned<EventHandle, &Device::destroy_event>;
  explicit Event(Point owned) : owned_(std::move(owned)) {}

  Point owned_;
};

}  // namespace hvd
