// Macros for code that both the host's compiler and nvcc compile, so that the arithmetic of kernels is tested without a
// GPU. HVD_HD marks its functions, and HVD_UNROLL is put before its loops over registers.
#pragma once

#ifdef __CUDACC__
#define HVD_HD __host__ __device__ __forceinline__
#define HVD_UNROLL _Pragma("unroll")
#else
#define HVD_HD inline
#define HVD_UNROLL
#endif
