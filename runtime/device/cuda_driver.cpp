// Device through the CUDA driver. This is the only file that includes cuda.h; nothing of CUDA is linked.
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <cuda.h>

#include "runtime/base/dyn_lib.h"
#include "runtime/device/device.h"
#include "runtime/device/fatbin.h"

namespace hvd {
namespace {

// Returns what to try, for the codes about which a user can do something.
const char* advice(CUresult code) {
  switch (static_cast<int>(code)) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "; use smaller batches, or a smaller HOROVOD_FUSION_THRESHOLD; what PyTorch keeps for itself it gives "
             "back "
             "by torch.cuda.empty_cache(), or never takes with torch.cuda.set_per_process_memory_fraction()";
    case CUDA_ERROR_NO_DEVICE:
      return "; see what nvidia-smi lists, and whether CUDA_VISIBLE_DEVICES hides it";
    case CUDA_ERROR_INVALID_DEVICE:
      return "; there are fewer GPUs for this process than that: see CUDA_VISIBLE_DEVICES";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return "; another process has the GPU for itself: see nvidia-smi -q -d COMPUTE";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "; this build has no code for this GPU and its driver: GPUs before compute capability 7.5 (nvidia-smi "
             "--query-gpu=compute_cap --format=csv) have none; for others install a newer driver, or build hvdrun with "
             "the CUDA toolkit of this one";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return "; the kernel's driver and libcuda.so.1 are of different versions: reboot, or install the same";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
      return "; the GPU's context is lost; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer names the kernel";
    default:
      return "";
  }
}

Code class_of(CUresult code) {
  switch (static_cast<int>(code)) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Code::kResource;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_FOUND:
      return Code::kNotFound;
    case CUDA_ERROR_INVALID_VALUE:
      return Code::kInvalid;
    default:
      return Code::kSystem;
  }
}

// X(member, function, symbol) stands for a function of the driver, in the version against which this file was compiled:
// macros of cuda.h select the type, and the symbol is what the library exports. Two symbols are the plain names. The
// cuDeviceGetUuid_v2 function gives the parts of a divided GPU different identities, and cuEventElapsedTime_v2, which
// older drivers lack, differs only for events that are not done.
#define HVD_CUDA_FUNCTIONS(X)                                                             \
  X(init, cuInit, "cuInit")                                                               \
  X(error_name, cuGetErrorName, "cuGetErrorName")                                         \
  X(error_string, cuGetErrorString, "cuGetErrorString")                                   \
  X(driver_version, cuDriverGetVersion, "cuDriverGetVersion")                             \
  X(device_count, cuDeviceGetCount, "cuDeviceGetCount")                                   \
  X(device_get, cuDeviceGet, "cuDeviceGet")                                               \
  X(device_name, cuDeviceGetName, "cuDeviceGetName")                                      \
  X(device_uuid, cuDeviceGetUuid, "cuDeviceGetUuid")                                      \
  X(device_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute")                       \
  X(context_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                 \
  X(context_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")           \
  X(context_push, cuCtxPushCurrent, "cuCtxPushCurrent_v2")                                \
  X(context_pop, cuCtxPopCurrent, "cuCtxPopCurrent_v2")                                   \
  X(module_load, cuModuleLoadData, "cuModuleLoadData")                                    \
  X(module_unload, cuModuleUnload, "cuModuleUnload")                                      \
  X(module_function, cuModuleGetFunction, "cuModuleGetFunction")                          \
  X(launch, cuLaunchKernel, "cuLaunchKernel")                                             \
  X(priority_range, cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange")           \
  X(stream_create, cuStreamCreateWithPriority, "cuStreamCreateWithPriority")              \
  X(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2")                                \
  X(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize")                       \
  X(stream_wait, cuStreamWaitEvent, "cuStreamWaitEvent")                                  \
  X(stream_is_capturing, cuStreamIsCapturing, "cuStreamIsCapturing")                      \
  X(capture_mode, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode") \
  X(launch_host, cuLaunchHostFunc, "cuLaunchHostFunc")                                    \
  X(event_create, cuEventCreate, "cuEventCreate")                                         \
  X(event_destroy, cuEventDestroy, "cuEventDestroy_v2")                                   \
  X(event_record, cuEventRecord, "cuEventRecord")                                         \
  X(event_query, cuEventQuery, "cuEventQuery")                                            \
  X(event_synchronize, cuEventSynchronize, "cuEventSynchronize")                          \
  X(event_elapsed, cuEventElapsedTime, "cuEventElapsedTime")                              \
  X(memory_alloc, cuMemAlloc, "cuMemAlloc_v2")                                            \
  X(memory_free, cuMemFree, "cuMemFree_v2")                                               \
  X(host_alloc, cuMemHostAlloc, "cuMemHostAlloc")                                         \
  X(host_free, cuMemFreeHost, "cuMemFreeHost")                                            \
  X(memory_copy, cuMemcpyAsync, "cuMemcpyAsync")                                          \
  X(memory_set, cuMemsetD8Async, "cuMemsetD8Async")                                       \
  X(pointer_attribute, cuPointerGetAttribute, "cuPointerGetAttribute")

// The driver's functions.
struct Functions {
  static Result<std::shared_ptr<const Functions>> load(const std::string& library);

  Result<void> check(CUresult code, const char* function) const;
  Result<void> take_all();

  DynLib file;
#define HVD_CUDA_MEMBER(member, function, symbol) decltype(::function)* member = nullptr;
  HVD_CUDA_FUNCTIONS(HVD_CUDA_MEMBER)
#undef HVD_CUDA_MEMBER
};

Result<void> Functions::check(CUresult code, const char* function) const {
  if (code == CUDA_SUCCESS) {
    return {};
  }
  const char* name = nullptr;
  const char* text = nullptr;
  const bool is_named = error_name(code, &name) == CUDA_SUCCESS && name != nullptr;
  const bool is_told = error_string(code, &text) == CUDA_SUCCESS && text != nullptr;
  return Error(class_of(code), std::string(function) + ": " +
                                   (is_named ? name : "CUDA error " + std::to_string(static_cast<int>(code))) +
                                   (is_told ? std::string(" (") + text + ")" : "") + advice(code));
}

Result<void> Functions::take_all() {
#define HVD_CUDA_TAKE(member, function, symbol) HVD_TRY(file.take(symbol, member));
  HVD_CUDA_FUNCTIONS(HVD_CUDA_TAKE)
#undef HVD_CUDA_TAKE
  return {};
}

Result<std::shared_ptr<const Functions>> Functions::load(const std::string& library) {
  auto made = std::make_shared<Functions>();
  auto file = DynLib::open(library, DynLib::Scope::kStays);
  if (!file.ok()) {
    return Error(Code::kNotFound, "no CUDA driver: " + file.error().message() +
                                      "; on a machine with an NVIDIA GPU install its driver, in a container start it "
                                      "with the GPUs (docker run --gpus all)");
  }
  made->file = std::move(file).value();
  if (auto taken = made->take_all(); !taken.ok()) {
    return taken.error().with_context("the CUDA driver is older than 11.4; update it");
  }
  HVD_TRY(made->check(made->init(0), "cuInit"));
  return std::shared_ptr<const Functions>(std::move(made));
}

CUdeviceptr number_of(const void* data) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(data));
}

class CudaDevice final : public Device {
 public:
  static Result<std::shared_ptr<Device>> make(int ordinal, const std::string& library);
  ~CudaDevice() override;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  Result<void> push_context() override { return check(cuda_->context_push(context_), "cuCtxPushCurrent"); }
  Result<void> pop_context() override {
    CUcontext popped = nullptr;
    return check(cuda_->context_pop(&popped), "cuCtxPopCurrent");
  }

  Result<CaptureMode> set_capture_mode(CaptureMode mode) override {
    auto exchanged = static_cast<CUstreamCaptureMode>(mode);
    HVD_TRY(check(cuda_->capture_mode(&exchanged), "cuThreadExchangeStreamCaptureMode"));
    return static_cast<CaptureMode>(exchanged);
  }

  Result<StreamHandle> make_stream() override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    StreamHandle made = nullptr;
    HVD_TRY(check(cuda_->stream_create(&made, CU_STREAM_NON_BLOCKING, priority_), "cuStreamCreateWithPriority"));
    return made;
  }
  void destroy_stream(StreamHandle stream) override {
    release([&] { return check(cuda_->stream_destroy(stream), "cuStreamDestroy"); });
  }
  Result<void> wait_for(StreamHandle stream, EventHandle event) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->stream_wait(stream, event, 0), "cuStreamWaitEvent");
  }
  Result<bool> is_capturing(StreamHandle stream) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult code = cuda_->stream_is_capturing(stream, &status);
    if (code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
      return true;
    }
    HVD_TRY(check(code, "cuStreamIsCapturing"));
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  Result<void> synchronize(StreamHandle stream) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->stream_synchronize(stream), "cuStreamSynchronize");
  }
  Result<void> call_on_host(StreamHandle stream, void (*function)(void*), void* argument) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->launch_host(stream, function, argument), "cuLaunchHostFunc");
  }

  Result<EventHandle> make_event(bool is_timed) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    EventHandle made = nullptr;
    HVD_TRY(check(cuda_->event_create(&made, is_timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
    return made;
  }
  void destroy_event(EventHandle event) override {
    release([&] { return check(cuda_->event_destroy(event), "cuEventDestroy"); });
  }
  Result<void> record(EventHandle event, StreamHandle stream) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->event_record(event, stream), "cuEventRecord");
  }
  Result<bool> is_done(EventHandle event) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    const CUresult code = cuda_->event_query(event);
    if (code == CUDA_ERROR_NOT_READY) {
      return false;
    }
    HVD_TRY(check(code, "cuEventQuery"));
    return true;
  }
  Result<void> wait_on_host(EventHandle event) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->event_synchronize(event), "cuEventSynchronize");
  }
  Result<float> elapsed_ms(EventHandle begin, EventHandle end) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    float time = 0.0F;
    HVD_TRY(check(cuda_->event_elapsed(&time, begin, end), "cuEventElapsedTime"));
    return time;
  }

  Result<void*> allocate(std::size_t size_bytes) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    CUdeviceptr made = 0;
    if (auto done = check(cuda_->memory_alloc(&made, size_bytes), "cuMemAlloc"); !done.ok()) {
      return done.error().with_context(std::to_string(size_bytes) + " bytes on GPU " + std::to_string(info_.ordinal));
    }
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(made));
  }
  void free_memory(void* data) override {
    release([&] { return check(cuda_->memory_free(number_of(data)), "cuMemFree"); });
  }
  Result<void*> allocate_pinned(std::size_t size_bytes) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    void* made = nullptr;
    if (auto done = check(cuda_->host_alloc(&made, size_bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
        !done.ok()) {
      return done.error().with_context(std::to_string(size_bytes) + " bytes of pinned memory");
    }
    return made;
  }
  void free_pinned(void* data) override {
    release([&] { return check(cuda_->host_free(data), "cuMemFreeHost"); });
  }
  Result<void> copy(void* to, const void* from, std::size_t size_bytes, StreamHandle stream) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->memory_copy(number_of(to), number_of(from), size_bytes, stream), "cuMemcpyAsync");
  }
  Result<void> fill(void* to, std::uint8_t value, std::size_t size_bytes, StreamHandle stream) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    return check(cuda_->memory_set(number_of(to), value, size_bytes, stream), "cuMemsetD8Async");
  }
  Result<int> device_of(const void* data) override;

  Result<KernelHandle> kernel(const std::string& name) override;
  Result<void> launch(KernelHandle kernel, LaunchSize size, std::span<void* const> arguments,
                      StreamHandle stream) override {
    HVD_TRY_ASSIGN(const auto current, Current::make(*this));
    // The driver takes the pointers as void**, but only reads them.
    void** pointers = const_cast<void**>(arguments.data());
    return check(cuda_->launch(kernel, size.blocks, 1, 1, size.threads, 1, 1, 0, stream, pointers, nullptr),
                 "cuLaunchKernel");
  }

  [[nodiscard]] Result<void> release_result() const override {
    const std::lock_guard lock(mutex_);
    return release_error_.has_value() ? Result<void>(*release_error_) : Result<void>();
  }

 private:
  CudaDevice(int ordinal, std::shared_ptr<const Functions> cuda) : cuda_(std::move(cuda)) { info_.ordinal = ordinal; }

  Result<void> find();
  Result<void> check(CUresult code, const char* function) const { return cuda_->check(code, function); }

  // Runs the call in the context; the first failure is kept.
  template <typename Call>
  void release(const Call& call) {
    auto current = Current::make(*this);
    auto done = current.ok() ? call() : Result<void>(current.error());
    const std::lock_guard lock(mutex_);
    if (!done.ok() && !release_error_.has_value()) {
      release_error_ = done.error();
    }
  }

  // constant after construction
  std::shared_ptr<const Functions> cuda_;
  DeviceInfo info_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int priority_ = 0;

  mutable std::mutex mutex_;
  // guarded by mutex_
  CUmodule module_ = nullptr;
  std::map<std::string, KernelHandle> kernels_;
  std::optional<Error> release_error_;
};

Result<std::shared_ptr<Device>> CudaDevice::make(int ordinal, const std::string& library) {
  HVD_TRY_ASSIGN(auto cuda, Functions::load(library));
  const std::shared_ptr<CudaDevice> made(new CudaDevice(ordinal, std::move(cuda)));
  if (auto found = made->find(); !found.ok()) {
    return found.error().with_context("GPU " + std::to_string(ordinal));
  }
  return std::shared_ptr<Device>(made);
}

Result<void> CudaDevice::find() {
  static constexpr int kMaxName = 256;
  HVD_TRY(check(cuda_->device_get(&device_, info_.ordinal), "cuDeviceGet"));
  std::array<char, kMaxName> name{};
  HVD_TRY(check(cuda_->device_name(name.data(), kMaxName, device_), "cuDeviceGetName"));
  info_.name = name.data();
  CUuuid uuid{};
  HVD_TRY(check(cuda_->device_uuid(&uuid, device_), "cuDeviceGetUuid"));
  for (std::size_t i = 0; i < info_.uuid.size(); ++i) {
    info_.uuid.at(i) = static_cast<std::uint8_t>(uuid.bytes[i]);
  }
  HVD_TRY(check(cuda_->device_attribute(&info_.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_),
                "cuDeviceGetAttribute"));
  HVD_TRY(check(cuda_->context_retain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  HVD_TRY_ASSIGN(const auto current, Current::make(*this));
  int lowest = 0;
  return check(cuda_->priority_range(&lowest, &priority_), "cuCtxGetStreamPriorityRange");
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) {
    return;
  }
  // No caller is left that could handle a failure, and what fails here ends with the context.
  if (module_ != nullptr) {
    if (auto current = Current::make(*this); current.ok()) {
      static_cast<void>(cuda_->module_unload(module_));
    }
  }
  static_cast<void>(cuda_->context_release(device_));
}

Result<int> CudaDevice::device_of(const void* data) {
  HVD_TRY_ASSIGN(const auto current, Current::make(*this));
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  const CUresult code = cuda_->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number_of(data));
  // CUDA reports a pointer that it does not know as an invalid value.
  if (code == CUDA_ERROR_INVALID_VALUE || (code == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST)) {
    return Error(Code::kNotFound, "this is memory of the host");
  }
  HVD_TRY(check(code, "cuPointerGetAttribute"));
  int ordinal = -1;
  HVD_TRY(check(cuda_->pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, number_of(data)),
                "cuPointerGetAttribute"));
  return ordinal;
}

Result<KernelHandle> CudaDevice::kernel(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (auto known = kernels_.find(name); known != kernels_.end()) {
    return known->second;
  }
  if (device_code().empty()) {
    return Error(Code::kNotFound,
                 "this build has no device code, for want of nvcc; build again where it is, with -DHVD_CUDA=on");
  }
  HVD_TRY_ASSIGN(const auto current, Current::make(*this));
  if (module_ == nullptr) {
    if (auto done = check(cuda_->module_load(&module_, device_code().data()), "cuModuleLoadData"); !done.ok()) {
      return done.error().with_context("device code for GPU " + std::to_string(info_.ordinal) + " (" + info_.name +
                                       ")");
    }
  }
  KernelHandle found = nullptr;
  if (auto done = check(cuda_->module_function(&found, module_, name.c_str()), "cuModuleGetFunction"); !done.ok()) {
    return done.error().with_context(name);
  }
  kernels_.emplace(name, found);
  return found;
}

}  // namespace

Result<std::shared_ptr<Device>> Device::open(int ordinal, const std::string& library) {
  return CudaDevice::make(ordinal, library);
}

Result<std::string> Device::describe_all(const std::string& library) {
  static constexpr int kMaxName = 256;
  HVD_TRY_ASSIGN(const auto cuda, Functions::load(library));
  int version = 0;  // 1000 * major + 10 * minor
  int count = 0;
  HVD_TRY(cuda->check(cuda->driver_version(&version), "cuDriverGetVersion"));
  HVD_TRY(cuda->check(cuda->device_count(&count), "cuDeviceGetCount"));
  std::string text = "CUDA driver " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                     ", " + std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    std::array<char, kMaxName> name{};
    HVD_TRY(cuda->check(cuda->device_get(&device, i), "cuDeviceGet"));
    HVD_TRY(cuda->check(cuda->device_name(name.data(), kMaxName, device), "cuDeviceGetName"));
    text += (i == 0 ? ": " : ", ") + std::string(name.data());
  }
  return text;
}

}  // namespace hvd
