// Device: one GPU as this process uses it, and the functions of its driver (libcuda.so.1), which is loaded when it is
// wanted and never linked. Nothing here knows the CUDA runtime (libcudart), so that it cannot meet PyTorch's.
//
// What is made here lives in the device's primary context, which PyTorch and NCCL use too, so that memory, streams and
// events may be exchanged with them. Each method makes that context current for its own time only: a caller's thread
// finds its own as it left it. No method waits for the device unless its comment says so.
//
// A thin layer: about one method for each driver function, a Result for its code. Stream, Event, DeviceMemory and
// PinnedMemory (stream.h, device_memory.h) own what is made here. Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/result.h"

// As cuda.h and the CUDA runtime name them: CUstream and cudaStream_t are StreamHandle. Null is the default stream.
struct CUstream_st;
struct CUevent_st;
struct CUfunc_st;

namespace hvd {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using KernelHandle = CUfunc_st*;

// The same for all processes that see a GPU, whatever number it has there; and for all parts of a GPU that is divided
// (MIG), since it is whole GPUs that NCCL tells apart.
using DeviceUuid = std::array<std::uint8_t, 16>;

// Blocks of threads; one dimension is all that is used.
struct LaunchSize {
  unsigned blocks = 1;
  unsigned threads = 1;
};

class Device {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads the driver and takes the GPU's primary context. `ordinal`: as CUDA numbers the GPUs that this process sees,
  // and as PyTorch does. kNotFound: no driver, no GPU, or none of that number; kInvalid: this build has no CUDA. The
  // text says what to try.
  static Result<std::shared_ptr<Device>> open(int ordinal, const std::string& library = kLibrary);
  // Says what is there: "CUDA driver 13.0, 1 GPU: NVIDIA H100"; errors as above.
  static Result<std::string> describe_all(const std::string& library = kLibrary);
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual int ordinal() const = 0;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const DeviceUuid& uuid() const = 0;
  [[nodiscard]] virtual int multiprocessors() const = 0;

  // ---- for a library that wants the context current in the calling thread, as NCCL does; see Current ----
  virtual Result<void> push_context() = 0;
  virtual Result<void> pop_context() = 0;

  // From here on calls in this thread neither fail nor spoil the CUDA graph that another thread captures meanwhile (the
  // thread's capture mode is relaxed; CUDA driver API, cuThreadExchangeStreamCaptureMode). For threads of ours alone.
  virtual Result<void> ignore_captures() = 0;

  // ---- streams ----
  // One that does not wait for the default stream (CU_STREAM_NON_BLOCKING), of the highest priority.
  virtual Result<StreamHandle> make_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) = 0;
  // What is put on `stream` from here on runs after what `event` marks. The host goes on at once.
  virtual Result<void> wait_for(StreamHandle stream, EventHandle event) = 0;
  // Whether a CUDA graph is being captured from it; of the default stream also: from one that waits for it.
  virtual Result<bool> is_capturing(StreamHandle stream) = 0;
  // Blocks the host until all that is on the stream is done. Not for a step that is repeated.
  virtual Result<void> synchronize(StreamHandle stream) = 0;
  // Calls function(argument) on a thread of the driver when all before it is done. It may not call CUDA.
  virtual Result<void> call_on_host(StreamHandle stream, void (*function)(void*), void* argument) = 0;

  // ---- events ----
  // Without times, which cost; with `is_timed` elapsed_ms can be asked.
  virtual Result<EventHandle> make_event(bool is_timed) = 0;
  virtual void destroy_event(EventHandle event) = 0;
  virtual Result<void> record(EventHandle event, StreamHandle stream) = 0;
  // Whether all that it marks is done; an error of what ran there is told here too.
  virtual Result<bool> is_done(EventHandle event) = 0;
  // Blocks the host.
  virtual Result<void> wait_on_host(EventHandle event) = 0;
  // Both timed and done.
  virtual Result<float> elapsed_ms(EventHandle begin, EventHandle end) = 0;

  // ---- memory ----
  // At least 256-byte aligned. The driver may wait for the device here, and does in free_memory: keep what is used
  // again.
  virtual Result<void*> allocate(std::size_t size_bytes) = 0;
  virtual void free_memory(void* data) = 0;
  // Host memory that the device reads and writes at full speed, by the same address.
  virtual Result<void*> allocate_pinned(std::size_t size_bytes) = 0;
  virtual void free_pinned(void* data) = 0;
  // On the stream; each side is memory of a device, pinned or any other of the host. From memory that is not pinned the
  // call may return late, but never before the source may change.
  virtual Result<void> copy(void* to, const void* from, std::size_t size_bytes, StreamHandle stream) = 0;
  virtual Result<void> fill(void* to, std::uint8_t value, std::size_t size_bytes, StreamHandle stream) = 0;
  // The number of the device whose memory this is; kNotFound: it is the host's.
  virtual Result<int> device_of(const void* data) = 0;

  // ---- kernels of ours ----
  // By its name in the device code that is built in, which is loaded at the first call. kNotFound: this build has none.
  // Valid as long as the device.
  virtual Result<KernelHandle> kernel(const char* name) = 0;
  // `arguments` point to the values, which are read before it returns.
  virtual Result<void> launch(KernelHandle kernel, LaunchSize size, std::span<void* const> arguments,
                              StreamHandle stream) = 0;

  // The first failure of destroy_... and free_...: those have no other way to tell.
  [[nodiscard]] virtual Result<void> release_result() const = 0;

 protected:
  Device() = default;
};

// The device's context is current in this thread while this lives.
class Current {
 public:
  static Result<Current> make(Device& device) {
    HVD_TRY(device.push_context());
    return Current(&device);
  }
  ~Current() {
    if (device_ != nullptr) {
      // Only a context that somebody else has popped can fail here, and then there is nothing to put back.
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

}  // namespace hvd
