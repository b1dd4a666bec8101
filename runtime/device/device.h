// Device is one GPU as this process uses it, and the functions of its driver (libcuda.so.1), which is loaded when
// needed and never linked. Nothing here uses the CUDA runtime (libcudart), so that it cannot conflict with PyTorch's.
//
// Everything made here lives in the device's primary context, which PyTorch and NCCL use too, so that memory, streams
// and events may be exchanged with them. Each method makes that context current only while it runs; the caller's thread
// finds its own context unchanged. No method waits for the device unless its comment says so.
//
// It is a thin layer: about one method for each driver function, and a Result for its code. DeviceStream, Event,
// DeviceMemory and PinnedMemory (stream.h, device_memory.h) own what is made here. Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/result.h"

// These names are those of cuda.h and the CUDA runtime: CUstream and cudaStream_t are StreamHandle. Null is the default
// stream.
struct CUstream_st;
struct CUevent_st;
struct CUfunc_st;

namespace hvd {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using KernelHandle = CUfunc_st*;

// The identity of a GPU, the same in all processes that see it, whatever number it has there. All parts of a divided
// GPU (MIG) have the same one, since NCCL distinguishes whole GPUs.
using DeviceUuid = std::array<std::uint8_t, 16>;

// The values of CUstreamCaptureMode: what makes a call invalid for a CUDA graph that is being captured.
enum class CaptureMode : std::uint8_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// The number of blocks and threads of a launch, in one dimension.
struct LaunchSize {
  unsigned blocks = 1;
  unsigned threads = 1;
};

struct DeviceInfo {
  int ordinal = 0;  // its number in this process
  std::string name;
  DeviceUuid uuid{};
  int multiprocessors = 0;
};

class Device {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads the driver and retains the GPU's primary context. `ordinal` is the number by which CUDA and PyTorch know the
  // GPU in this process. kNotFound: no driver, no GPU, or none of that number; kInvalid: this build has no CUDA. The
  // text says what to try.
  static Result<std::shared_ptr<Device>> open(int ordinal, const std::string& library = kLibrary);
  // Describes what is there: "CUDA driver 13.0, 1 GPU: NVIDIA H100"; errors as above.
  static Result<std::string> describe_all(const std::string& library = kLibrary);
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Returns what the device is, which stays the same as long as this object lives.
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  // ---- for a library that needs the context current in the calling thread, as NCCL does; see Current ----
  virtual Result<void> push_context() = 0;
  virtual Result<void> pop_context() = 0;

  // Sets how calls of this thread go together with a CUDA graph that another thread captures; returns what was set
  // (CUDA driver API, cuThreadExchangeStreamCaptureMode). See RelaxedCapture.
  virtual Result<CaptureMode> set_capture_mode(CaptureMode mode) = 0;

  // ---- streams ----
  // Makes a stream that does not wait for the default stream (CU_STREAM_NON_BLOCKING), of the highest priority.
  virtual Result<StreamHandle> make_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) = 0;
  // Work that is put on `stream` from now on runs after what `event` marks. The host does not wait.
  virtual Result<void> wait_for(StreamHandle stream, EventHandle event) = 0;
  // Whether a CUDA graph is being captured from the stream; for the default stream also: from a stream that waits for
  // it.
  virtual Result<bool> is_capturing(StreamHandle stream) = 0;
  // Blocks the host until all work on the stream is done. Not for a step that is repeated.
  virtual Result<void> synchronize(StreamHandle stream) = 0;
  // Calls function(argument) on a thread of the driver when all earlier work is done. The function may not call CUDA.
  virtual Result<void> call_on_host(StreamHandle stream, void (*function)(void*), void* argument) = 0;

  // ---- events ----
  // Makes an event without times, which are expensive; with `is_timed`, elapsed_ms works.
  virtual Result<EventHandle> make_event(bool is_timed) = 0;
  virtual void destroy_event(EventHandle event) = 0;
  virtual Result<void> record(EventHandle event, StreamHandle stream) = 0;
  // Whether all that the event marks is done. An error of that work is reported here too.
  virtual Result<bool> is_done(EventHandle event) = 0;
  // Blocks the host.
  virtual Result<void> wait_on_host(EventHandle event) = 0;
  // Both events must be timed and done.
  virtual Result<float> elapsed_ms(EventHandle begin, EventHandle end) = 0;

  // ---- memory ----
  // Returns memory that is at least 256-byte aligned. The driver may wait for the device here, and always does in
  // free_memory: keep memory that is used again.
  virtual Result<void*> allocate(std::size_t size_bytes) = 0;
  virtual void free_memory(void* data) = 0;
  // Returns host memory that the device reads and writes at full speed, at the same address.
  virtual Result<void*> allocate_pinned(std::size_t size_bytes) = 0;
  virtual void free_pinned(void* data) = 0;
  // Copies on the stream; each side is device memory, pinned or other host memory. From memory that is not pinned the
  // call may return late, but never before the source may change.
  virtual Result<void> copy(void* to, const void* from, std::size_t size_bytes, StreamHandle stream) = 0;
  virtual Result<void> fill(void* to, std::uint8_t value, std::size_t size_bytes, StreamHandle stream) = 0;
  // Returns the number of the device that has this memory; kNotFound: it is host memory.
  virtual Result<int> device_of(const void* data) = 0;

  // ---- kernels of ours ----
  // Finds a kernel by its name in the built-in device code, which is loaded at the first call. kNotFound: this build
  // has none. The handle is valid as long as the device.
  virtual Result<KernelHandle> kernel(const std::string& name) = 0;
  // `arguments` point to the values, which are read before it returns.
  virtual Result<void> launch(KernelHandle kernel, LaunchSize size, std::span<void* const> arguments,
                              StreamHandle stream) = 0;

  // The first failure of destroy_... and free_..., which cannot report it otherwise.
  [[nodiscard]] virtual Result<void> release_result() const = 0;

 protected:
  Device() = default;
};

// Current makes the device's context current in this thread while it lives.
class Current {
 public:
  static Result<Current> make(Device& device) {
    HVD_TRY(device.push_context());
    return Current(&device);
  }
  ~Current() {
    if (device_ != nullptr) {
      // This can fail only if other code has popped the context, and then there is nothing to restore.
      static_cast<void>(device_->pop_context().ok());
    }
  }
  Current(Current&& other) noexcept : device_(std::exchange(other.device_, nullptr)) {}
  Current& operator=(Current&&) = delete;
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  explicit Current(Device* device) : device_(device) {}
  Device* device_;
};

// Owned owns a thing that Device made, and releases it. It is move-only, and keeps the device alive.
template <typename Handle, void (Device::*kRelease)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<Device> device, Handle handle) : device_(std::move(device)), handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) {
      (device_.get()->*kRelease)(handle_);
    }
  }
  Owned(Owned&& other) noexcept : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] Handle handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  Handle handle_ = nullptr;
};

// While it lives, calls of this thread neither fail because another thread is capturing a CUDA graph, nor invalidate
// that graph. The thread may be the program's: it finds its own mode again.
class RelaxedCapture {
 public:
  // If the driver refuses, the first call that needs memory reports it.
  explicit RelaxedCapture(std::shared_ptr<Device> device)
      : device_(std::move(device)), before_(device_->set_capture_mode(CaptureMode::kRelaxed)) {}
  ~RelaxedCapture() {
    if (before_.ok()) {
      static_cast<void>(device_->set_capture_mode(before_.value()).ok());
    }
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const std::shared_ptr<Device> device_;
  const Result<CaptureMode> before_;
};

}  // namespace hvd
