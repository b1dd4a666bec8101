// The fake driver's functions about modules and kernels.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <cuda.h>

#include "tests/support/fake_cuda/driver_state.h"
#include "tests/support/fake_cuda/fake_kernels.h"

using hvd::fake::begin;
using hvd::fake::Context;
using hvd::fake::find_kernel;
using hvd::fake::find_stream;
using hvd::fake::push_work;
using hvd::fake::registry;

extern "C" {

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
  *function = find_kernel(name);
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
