// The fake driver's functions about contexts.
#include <cuda.h>

#include "tests/support/fake_cuda/driver_state.h"

using hvd::fake::begin;
using hvd::fake::Context;
using hvd::fake::context_at;
using hvd::fake::current_contexts;
using hvd::fake::wait_for_device;

extern "C" {

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
    current_contexts().push_back(context);
  }
  return code;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  if (current_contexts().empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = current_contexts().back();
  current_contexts().pop_back();
  return begin("cuCtxPopCurrent");
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  *context = current_contexts().empty() ? nullptr : current_contexts().back();
  return begin("cuCtxGetCurrent");
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  if (!current_contexts().empty()) {
    current_contexts().pop_back();
  }
  if (context != nullptr) {
    current_contexts().push_back(context);
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

}  // extern "C"
