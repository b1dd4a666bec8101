// The fake driver's start, its errors' names, and its devices.
#include <cstdlib>
#include <cstring>
#include <map>

#include <cuda.h>

#include "tests/support/fake_cuda/driver_state.h"
#include "tests/support/fake_cuda/fake_faults.h"

using hvd::fake::begin;
using hvd::fake::context_at;
using hvd::fake::count_call;
using hvd::fake::read_failures;
using hvd::fake::Registry;
using hvd::fake::registry;

namespace {

int number_in(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : fallback;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned int) {
  static constexpr int kMaxDevices = 64;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.is_initialized) {
    const char* failures = std::getenv("FAKE_CUDA_FAIL");
    if (failures != nullptr && !read_failures(failures)) {
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

}  // extern "C"
