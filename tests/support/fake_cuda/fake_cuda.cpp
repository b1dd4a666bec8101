#include "tests/support/fake_cuda/fake_cuda.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>

#include <cuda.h>

#include "tests/support/fake_cuda/fake_faults.h"
#include "tests/support/fake_cuda/fake_kernels.h"
#include "tests/support/fake_cuda/fake_memory.h"
#include "tests/support/fake_cuda/fake_stream.h"

// A context is the driver's pointer to ours.
struct CUctx_st {
  hvd::fake::Context context;
};

namespace {

using hvd::fake::Block;
using hvd::fake::Context;
using hvd::fake::count_call;
using hvd::fake::find_block;
using hvd::fake::is_within_block;
using hvd::fake::Mark;

// Everything that has a handle. Never destroyed: streams may run until the process ends.
struct Registry {
  std::mutex mutex;
  bool is_initialized = false;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::vector<std::shared_ptr<CUstream_st>> default_streams;
  std::map<CUstream, std::shared_ptr<CUstream_st>> streams;
  std::map<CUevent, std::shared_ptr<CUevent_st>> events;
  std::set<CUmodule> modules;
  int first_uuid = 0;
  std::chrono::microseconds delay{0};
};

Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

thread_local std::vector<CUcontext> current_contexts;
std::atomic<int> captures{0};
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

int number_in(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : fallback;
}

// Counts the call; whether it may go on.
CUresult begin(const char* function) {
  const int code = count_call(function);
  if (code != 0) {
    return static_cast<CUresult>(code);
  }
  const std::lock_guard lock(registry().mutex);
  return registry().is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

// The same for what needs a context, which must not be lost.
CUresult begin(const char* function, Context*& context) {
  if (const CUresult code = begin(function); code != CUDA_SUCCESS) {
    return code;
  }
  if (current_contexts.empty() || current_contexts.back() == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  context = &current_contexts.back()->context;
  if (context->retained.load() == 0) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return static_cast<CUresult>(context->lost.load());
}

// The same for what no thread of the usual mode may do while a graph is captured anywhere in the process.
CUresult begin_unsafe(const char* function, Context*& context) {
  if (const CUresult code = begin(function, context); code != CUDA_SUCCESS) {
    return code;
  }
  if (capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && captures.load() > 0) {
    static_cast<void>(count_call("spoiled capture"));
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

// Null: no such stream of this context.
std::shared_ptr<CUstream_st> find_stream(CUstream handle, const Context& context) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (handle == nullptr) {
    auto& own = all.default_streams[static_cast<std::size_t>(context.ordinal)];
    if (own == nullptr) {
      own = std::make_shared<CUstream_st>(all.contexts[static_cast<std::size_t>(context.ordinal)]->context);
      own->start(all.delay);
    }
    return own;
  }
  const auto known = all.streams.find(handle);
  return known == all.streams.end() || &known->second->context != &context ? nullptr : known->second;
}

std::shared_ptr<CUevent_st> find_event(CUevent handle) {
  const std::lock_guard lock(registry().mutex);
  const auto known = registry().events.find(handle);
  return known == registry().events.end() ? nullptr : known->second;
}

std::shared_ptr<Mark> last_of(const CUevent_st& event) {
  const std::lock_guard lock(registry().mutex);
  return event.last;
}

// As a real device does that runs into an error: nothing after it can be trusted.
void lose(Context& context, int code) {
  int none = 0;
  context.lost.compare_exchange_strong(none, code);
}

// Puts the work on the stream; unless the context is lost by then. `what` is counted, and may be asked to fail.
void push_work(const std::shared_ptr<CUstream_st>& stream, const char* what, std::function<bool()> work) {
  Context& context = stream->context;
  stream->push([&context, what, work = std::move(work)] {
    if (context.lost.load() != 0) {
      return;
    }
    if (const int code = count_call(what); code != 0) {
      lose(context, code);
    } else if (!work()) {
      lose(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
  });
}

void* pointer_of(CUdeviceptr data) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(data));
}

void wait_for_device(const Context& context) {
  std::vector<std::shared_ptr<CUstream_st>> all;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [handle, stream] : registry().streams) {
      all.push_back(stream);
    }
    for (const auto& stream : registry().default_streams) {
      all.push_back(stream);
    }
  }
  for (const auto& stream : all) {
    if (stream != nullptr && &stream->context == &context) {
      stream->wait_until_idle();
    }
  }
}

CUcontext context_at(CUdevice device) {
  const std::lock_guard lock(registry().mutex);
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < registry().contexts.size() ? registry().contexts[index].get() : nullptr;
}

}  // namespace

extern "C" {

std::int64_t fake_cuda_count(const char* what) {
  return hvd::fake::calls_of(what);
}
void fake_cuda_fail(const char* what, int calls, int code) {
  hvd::fake::fail_at(what, calls, code);
}
void fake_cuda_set_capturing(void* stream, int is_capturing) {
  const std::lock_guard lock(registry().mutex);
  const auto known = registry().streams.find(static_cast<CUstream>(stream));
  if (known != registry().streams.end()) {
    const bool was_capturing = known->second->is_capturing.exchange(is_capturing != 0);
    captures += (is_capturing != 0 ? 1 : 0) - (was_capturing ? 1 : 0);
  }
}
void fake_cuda_wait_for_device() {
  if (!current_contexts.empty() && current_contexts.back() != nullptr) {
    wait_for_device(current_contexts.back()->context);
  }
}
void* fake_cuda_current_context() {
  return current_contexts.empty() ? nullptr : current_contexts.back();
}
void fake_cuda_mend(int ordinal) {
  if (CUcontext context = context_at(ordinal); context != nullptr) {
    context->context.lost = 0;
  }
}

// ---- the driver and its devices ----

CUresult CUDAAPI cuInit(unsigned int) {
  static constexpr int kMaxDevices = 64;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.is_initialized) {
    const char* failures = std::getenv("FAKE_CUDA_FAIL");
    if (failures != nullptr && !hvd::fake::read_failures(failures)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int devices = number_in("FAKE_CUDA_DEVICES", 1);
    if (devices < 0 || devices > kMaxDevices) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < devices; ++i) {
      all.contexts.push_back(std::make_unique<CUctx_st>());
      all.contexts.back()->context.ordinal = i;
    }
    all.default_streams.resize(static_cast<std::size_t>(devices));
    all.first_uuid = number_in("FAKE_CUDA_FIRST_UUID", 0);
    all.delay = std::chrono::microseconds(number_in("FAKE_CUDA_DELAY_US", 0));
  }
  if (const int code = count_call("cuInit"); code != 0) {
    return static_cast<CUresult>(code);
  }
  all.is_initialized = true;
  return all.contexts.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult code, const char** text) {
  static const std::map<int, const char*> names = {
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
      {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
      {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
      {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
      {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
      {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
      {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
  };
  const auto known = names.find(static_cast<int>(code));
  *text = known == names.end() ? nullptr : known->second;
  return known == names.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult code, const char** text) {
  const CUresult known = cuGetErrorName(code, text);
  *text = known == CUDA_SUCCESS ? "the fake driver was asked to fail, or used wrongly" : nullptr;
  return known;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  const CUresult code = begin("cuDeviceGetCount");
  const std::lock_guard lock(registry().mutex);
  *count = static_cast<int>(registry().contexts.size());
  return code;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult code = begin("cuDeviceGet"); code != CUDA_SUCCESS) {
    return code;
  }
  *device = ordinal;
  return context_at(ordinal) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int size, CUdevice) {
  const CUresult code = begin("cuDeviceGetName");
  std::strncpy(name, "fake GPU", static_cast<std::size_t>(size));
  return code;
}

// The plain name: of the whole GPU, where it is divided. Drivers keep both.
#undef cuDeviceGetUuid
CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  const CUresult code = begin("cuDeviceGetUuid");
  std::memcpy(uuid->bytes, "fake GPU fake GP", sizeof(uuid->bytes));
  const std::lock_guard lock(registry().mutex);
  uuid->bytes[sizeof(uuid->bytes) - 1] = static_cast<char>(registry().first_uuid + device);
  return code;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  const CUresult code = begin("cuDeviceGetAttribute");
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4 : 0;
  return code;
}

// ---- contexts ----

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult code = begin("cuDevicePrimaryCtxRetain"); code != CUDA_SUCCESS) {
    return code;
  }
  *context = context_at(device);
  if (*context == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  ++(*context)->context.retained;
  return static_cast<CUresult>((*context)->context.lost.load());
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  const CUresult code = begin("cuDevicePrimaryCtxRelease");
  CUcontext context = context_at(device);
  if (context == nullptr || context->context.retained.load() == 0) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  --context->context.retained;
  return code;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  const CUresult code = begin("cuCtxPushCurrent");
  if (code == CUDA_SUCCESS) {
    current_contexts.push_back(context);
  }
  return code;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  if (current_contexts.empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = current_contexts.back();
  current_contexts.pop_back();
  return begin("cuCtxPopCurrent");
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  *context = current_contexts.empty() ? nullptr : current_contexts.back();
  return begin("cuCtxGetCurrent");
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  if (!current_contexts.empty()) {
    current_contexts.pop_back();
  }
  if (context != nullptr) {
    current_contexts.push_back(context);
  }
  return begin("cuCtxSetCurrent");
}

CUresult CUDAAPI cuCtxSynchronize() {
  Context* context = nullptr;
  if (const CUresult code = begin("cuCtxSynchronize", context); code != CUDA_SUCCESS) {
    return code;
  }
  wait_for_device(*context);
  return static_cast<CUresult>(context->lost.load());
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  Context* context = nullptr;
  *lowest = 0;
  *highest = -5;
  return begin("cuCtxGetStreamPriorityRange", context);
}

// ---- streams ----

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned int, int) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuStreamCreateWithPriority", context); code != CUDA_SUCCESS) {
    return code;
  }
  auto made = std::make_shared<CUstream_st>(*context);
  const std::lock_guard lock(registry().mutex);
  made->start(registry().delay);
  *stream = made.get();
  registry().streams[*stream] = std::move(made);
  hvd::fake::add_live("live stream", 1);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  Context* context = nullptr;
  const CUresult code = begin("cuStreamDestroy", context);
  const std::lock_guard lock(registry().mutex);
  const auto known = registry().streams.find(stream);
  if (known == registry().streams.end()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  known->second->close();
  registry().streams.erase(known);
  hvd::fake::add_live("live stream", -1);
  return code;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuStreamSynchronize", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  stream->wait_until_idle();
  return static_cast<CUresult>(context->lost.load());
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  Context* context = nullptr;
  if (const CUresult code = begin_unsafe("cuStreamQuery", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return stream->is_idle() ? static_cast<CUresult>(context->lost.load()) : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuStreamWaitEvent", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  const auto event = find_event(event_handle);
  if (stream == nullptr || event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (auto mark = last_of(*event); mark != nullptr) {
    stream->push([mark] { mark->wait(); });
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const CUresult code = begin("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, capture_mode);
  return code;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuStreamIsCapturing", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *status = stream->is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuLaunchHostFunc", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  push_work(stream, "host function", [function, argument] {
    function(argument);
    return true;
  });
  return CUDA_SUCCESS;
}

// ---- events ----

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuEventCreate", context); code != CUDA_SUCCESS) {
    return code;
  }
  auto made = std::make_shared<CUevent_st>(*context, (flags & CU_EVENT_DISABLE_TIMING) == 0);
  const std::lock_guard lock(registry().mutex);
  *event = made.get();
  registry().events[*event] = std::move(made);
  hvd::fake::add_live("live event", 1);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  Context* context = nullptr;
  const CUresult code = begin("cuEventDestroy", context);
  const std::lock_guard lock(registry().mutex);
  if (registry().events.erase(event) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  hvd::fake::add_live("live event", -1);
  return code;
}

CUresult CUDAAPI cuEventRecord(CUevent event_handle, CUstream handle) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuEventRecord", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  const auto event = find_event(event_handle);
  if (stream == nullptr || event == nullptr || &event->context != context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard lock(registry().mutex);
    event->last = mark;
  }
  stream->push([mark] { mark->pass(); });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  Context* context = nullptr;
  if (const CUresult code = begin_unsafe("cuEventQuery", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto event = find_event(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto mark = last_of(*event);
  return mark == nullptr || mark->is_passed() ? static_cast<CUresult>(context->lost.load()) : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuEventSynchronize", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto event = find_event(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (const auto mark = last_of(*event); mark != nullptr) {
    mark->wait();
  }
  return static_cast<CUresult>(context->lost.load());
}

// The name that the library of today's cuda.h would not have: drivers keep both.
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin_handle, CUevent end_handle) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuEventElapsedTime", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto first = find_event(begin_handle);
  const auto last = find_event(end_handle);
  if (first == nullptr || last == nullptr || !first->is_timed || !last->is_timed) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto from = last_of(*first);
  const auto until = last_of(*last);
  if (from == nullptr || until == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!from->is_passed() || !until->is_passed()) {
    return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(until->time() - from->time()).count();
  return CUDA_SUCCESS;
}

// ---- memory ----

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* data, size_t size_bytes) {
  Context* context = nullptr;
  if (const CUresult code = begin_unsafe("cuMemAlloc", context); code != CUDA_SUCCESS) {
    return code;
  }
  void* made = size_bytes == 0 ? nullptr : hvd::fake::allocate(size_bytes, context->ordinal, false);
  *data = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(made));
  return size_bytes == 0 ? CUDA_ERROR_INVALID_VALUE : made == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

// Waits for the device, as the real one does.
CUresult CUDAAPI cuMemFree(CUdeviceptr data) {
  Context* context = nullptr;
  const CUresult code = begin("cuMemFree", context);
  if (context != nullptr) {
    wait_for_device(*context);
  }
  return hvd::fake::free_block(pointer_of(data), false) ? code : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemHostAlloc(void** data, size_t size_bytes, unsigned int) {
  Context* context = nullptr;
  if (const CUresult code = begin_unsafe("cuMemHostAlloc", context); code != CUDA_SUCCESS) {
    return code;
  }
  *data = hvd::fake::allocate(size_bytes, context->ordinal, true);
  return *data == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeHost(void* data) {
  Context* context = nullptr;
  const CUresult code = begin("cuMemFreeHost", context);
  if (context != nullptr) {
    wait_for_device(*context);
  }
  return hvd::fake::free_block(data, true) ? code : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream handle) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuMemcpyAsync", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  void* target = pointer_of(to);
  const void* source = pointer_of(from);
  const bool is_to_pageable = !find_block(target).has_value();
  const bool is_from_pageable = !find_block(source).has_value();
  if ((!is_to_pageable && !is_within_block(target, size_bytes)) ||
      (!is_from_pageable && !is_within_block(source, size_bytes))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (is_from_pageable) {
    // Read before the call returns, as the real one does.
    std::shared_ptr<void> kept(std::malloc(size_bytes), &std::free);
    std::memcpy(kept.get(), source, size_bytes);
    push_work(stream, "copy", [target, kept, size_bytes] {
      std::memcpy(target, kept.get(), size_bytes);
      return true;
    });
  } else {
    push_work(stream, "copy", [target, source, size_bytes] {
      std::memmove(target, source, size_bytes);
      return true;
    });
  }
  if (is_to_pageable || is_from_pageable) {
    static_cast<void>(count_call("pageable copy"));
  }
  if (is_to_pageable) {
    stream->wait_until_idle();  // as the real one does
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size_bytes, CUstream handle) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuMemsetD8Async", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!is_within_block(pointer_of(to), size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  push_work(stream, "fill", [target = pointer_of(to), value, size_bytes] {
    std::memset(target, value, size_bytes);
    return true;
  });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr data) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuPointerGetAttribute", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto block = find_block(pointer_of(data));
  if (!block.has_value()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    *static_cast<unsigned*>(value) = block->is_pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    *static_cast<int*>(value) = block->device;
  } else {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// ---- kernels ----

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuModuleLoadData", context); code != CUDA_SUCCESS) {
    return code;
  }
  static constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  if (magic != kFatbinMagic) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = reinterpret_cast<CUmodule>(new int(context->ordinal));
  const std::lock_guard lock(registry().mutex);
  registry().modules.insert(*module);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  Context* context = nullptr;
  const CUresult code = begin("cuModuleUnload", context);
  const std::lock_guard lock(registry().mutex);
  if (registry().modules.erase(module) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  delete reinterpret_cast<int*>(module);
  return code;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuModuleGetFunction", context); code != CUDA_SUCCESS) {
    return code;
  }
  const std::lock_guard lock(registry().mutex);
  if (!registry().modules.contains(module)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *function = hvd::fake::find_kernel(name);
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int blocks_y, unsigned int blocks_z,
                                unsigned int threads, unsigned int threads_y, unsigned int threads_z, unsigned int,
                                CUstream handle, void** arguments, void**) {
  static constexpr unsigned kMaxThreads = 1024;
  Context* context = nullptr;
  if (const CUresult code = begin("cuLaunchKernel", context); code != CUDA_SUCCESS) {
    return code;
  }
  const auto stream = find_stream(handle, *context);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (blocks == 0 || threads == 0 || threads > kMaxThreads || blocks_y * blocks_z * threads_y * threads_z != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The caller's values are gone when this has returned.
  std::vector<std::vector<std::byte>> values;
  for (std::size_t i = 0; i < function->argument_sizes.size(); ++i) {
    const auto* first = static_cast<const std::byte*>(arguments[i]);
    values.emplace_back(first, first + function->argument_sizes[i]);
  }
  push_work(stream, "kernel", [function, blocks, threads, values]() mutable {
    std::vector<void*> pointers;
    for (auto& value : values) {
      pointers.push_back(value.data());
    }
    return function->run(blocks, threads, pointers);
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
