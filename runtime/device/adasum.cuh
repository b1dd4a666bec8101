// The GPU kernels for Adasum of two vectors; adasum_body.h says what each thread does. Each pair takes two launches,
// and the host reads nothing between them.
#pragma once

#include "runtime/device/adasum_body.h"

namespace hvd {
namespace {

// Returns the sum of the block's values to each of its threads; the order of additions is a fixed tree.
__device__ Products sum_of_block(Products mine) {
  __shared__ Products sums[kProductThreads];
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kProductThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x].add(sums[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return sums[0];
}

template <typename Element>
__device__ void add_products(const AdasumPair& pair) {
  const Products sum = sum_of_block(products_of_thread<Element>(pair, blockIdx.x, threadIdx.x));
  if (threadIdx.x == 0) {
    pair.partial[blockIdx.x] = sum;
  }
}

// Each block adds the partial sums again, which costs less than a separate launch.
template <typename Element>
__device__ void combine(const AdasumPair& pair) {
  const AdasumWeights weights =
      pair.partial == nullptr ? pair.fixed : weights_of(sum_of_block(pair.partial[threadIdx.x]));
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < pair.count; i += stride) {
    combine_element<Element>(pair, weights, i);
  }
}

}  // namespace

#define HVD_ADASUM_KERNEL(suffix, Element)                                                                \
  extern "C" __global__ void __launch_bounds__(256) hvd_adasum_products_##suffix(const AdasumPair pair) { \
    add_products<Element>(pair);                                                                          \
  }                                                                                                       \
  extern "C" __global__ void __launch_bounds__(256) hvd_adasum_combine_##suffix(const AdasumPair pair) {  \
    combine<Element>(pair);                                                                               \
  }
HVD_ADASUM_KERNELS(HVD_ADASUM_KERNEL)

}  // namespace hvd
