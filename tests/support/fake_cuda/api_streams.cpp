// The fake driver's functions about streams, and the capture of graphs from them.
#include <utility>

#include <cuda.h>

#include "tests/support/fake_cuda/driver_state.h"
#include "tests/support/fake_cuda/fake_faults.h"

using hvd::fake::add_live;
using hvd::fake::begin;
using hvd::fake::begin_unsafe;
using hvd::fake::capture_mode;
using hvd::fake::Context;
using hvd::fake::find_event;
using hvd::fake::find_stream;
using hvd::fake::last_of;
using hvd::fake::push_work;
using hvd::fake::registry;

extern "C" {

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
  add_live("live stream", 1);
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
  add_live("live stream", -1);
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
  std::swap(*mode, capture_mode());
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

}  // extern "C"
