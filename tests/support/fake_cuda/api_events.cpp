// The fake driver's functions about events.
#include <utility>

#include <cuda.h>

#include "tests/support/fake_cuda/driver_state.h"
#include "tests/support/fake_cuda/fake_faults.h"

using hvd::fake::add_live;
using hvd::fake::begin;
using hvd::fake::begin_unsafe;
using hvd::fake::Context;
using hvd::fake::find_event;
using hvd::fake::find_stream;
using hvd::fake::last_of;
using hvd::fake::Mark;
using hvd::fake::registry;

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult code = begin("cuEventCreate", context); code != CUDA_SUCCESS) {
    return code;
  }
  auto made = std::make_shared<CUevent_st>(*context, (flags & CU_EVENT_DISABLE_TIMING) == 0);
  const std::lock_guard lock(registry().mutex);
  *event = made.get();
  registry().events[*event] = std::move(made);
  add_live("live event", 1);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  Context* context = nullptr;
  const CUresult code = begin("cuEventDestroy", context);
  const std::lock_guard lock(registry().mutex);
  if (registry().events.erase(event) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  add_live("live event", -1);
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

}  // extern "C"
