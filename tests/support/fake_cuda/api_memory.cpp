// The fake driver's functions about memory.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <cuda.h>

#include "tests/support/fake_cuda/driver_state.h"
#include "tests/support/fake_cuda/fake_faults.h"
#include "tests/support/fake_cuda/fake_memory.h"

using hvd::fake::allocate;
using hvd::fake::begin;
using hvd::fake::begin_unsafe;
using hvd::fake::Context;
using hvd::fake::count_call;
using hvd::fake::find_block;
using hvd::fake::find_stream;
using hvd::fake::free_block;
using hvd::fake::is_within_block;
using hvd::fake::push_work;
using hvd::fake::wait_for_device;

namespace {

void* pointer_of(CUdeviceptr data) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(data));
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* data, size_t size_bytes) {
  Context* context = nullptr;
  if (const CUresult code = begin_unsafe("cuMemAlloc", context); code != CUDA_SUCCESS) {
    return code;
  }
  void* made = size_bytes == 0 ? nullptr : allocate(size_bytes, context->ordinal, false);
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
  return free_block(pointer_of(data), false) ? code : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemHostAlloc(void** data, size_t size_bytes, unsigned int) {
  Context* context = nullptr;
  if (const CUresult code = begin_unsafe("cuMemHostAlloc", context); code != CUDA_SUCCESS) {
    return code;
  }
  *data = allocate(size_bytes, context->ordinal, true);
  return *data == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeHost(void* data) {
  Context* context = nullptr;
  const CUresult code = begin("cuMemFreeHost", context);
  if (context != nullptr) {
    wait_for_device(*context);
  }
  return free_block(data, true) ? code : CUDA_ERROR_INVALID_VALUE;
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

}  // extern "C"
