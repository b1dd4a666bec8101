// The GPU kernels that move many pieces of memory at once; move_body.h says how.
#pragma once

#include "runtime/device/move_body.h"

namespace hvd {

#define HVD_MOVE_KERNEL(name, From, To)                                                           \
  extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ MoveList list) { \
    const std::uint64_t warps_of_block = blockDim.x / kWarpLanes;                                 \
    const std::uint64_t warp = blockIdx.x * warps_of_block + threadIdx.x / kWarpLanes;            \
    move_lane<Mover<From, To>>(list, warp, gridDim.x * warps_of_block, threadIdx.x % kWarpLanes); \
  }
HVD_MOVE_KERNELS(HVD_MOVE_KERNEL)

}  // namespace hvd
