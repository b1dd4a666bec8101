// The binary interface of NCCL: numbers, sizes and function types, as they are since version 2.18. libhvd loads NCCL at
// run time, so building needs no header of NVIDIA. tests/unit/runtime/nccl/nccl_abi_test.cpp compares this with the
// nccl.h of a machine that has one.
#pragma once

#include <climits>
#include <cstddef>

// These names are NCCL's and CUDA's.
struct ncclComm;
struct CUstream_st;

namespace hvd {

using NcclHandle = ncclComm*;
using NcclStream = CUstream_st*;

// ncclUniqueId, which rank 0 makes and sends to all others.
struct NcclId {
  char internal[128] = {};
};

// ncclResult_t.
enum class NcclCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8  // of later versions
};

// ncclDataType_t.
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};

// ncclRedOp_t.
enum class NcclOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };

inline constexpr int kNcclNoColor = -1;  // NCCL_SPLIT_NOCOLOR

// The version number as ncclGetVersion returns it.
constexpr int nccl_version(int major, int minor, int patch) {
  return major * 10000 + minor * 100 + patch;
}
inline constexpr int kOldestNccl = nccl_version(2, 18, 0);
// From this version on, several ranks may share a GPU if NCCL_MULTI_RANK_GPU_ENABLE is set.
inline constexpr int kNcclSharesGpus = nccl_version(2, 30, 0);

// ncclConfig_t of 2.18. Later ones are longer; NCCL reads as much as `size` says and recognises what is missing.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeefU;
  unsigned version = kOldestNccl;
  int blocking = 0;  // calls return at once, with kInProgress until they have finished
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// X(result, member, symbol, (parameters)) stands for a function of the library.
#define HVD_NCCL_FUNCTIONS(X)                                                                                         \
  X(const char*, get_last_error, "ncclGetLastError", (NcclHandle))                                                    \
  X(NcclCode, get_unique_id, "ncclGetUniqueId", (NcclId*))                                                            \
  X(NcclCode, comm_init_rank_config, "ncclCommInitRankConfig", (NcclHandle*, int, NcclId, int, NcclConfig*))          \
  X(NcclCode, comm_split, "ncclCommSplit", (NcclHandle, int, int, NcclHandle*, NcclConfig*))                          \
  X(NcclCode, comm_get_async_error, "ncclCommGetAsyncError", (NcclHandle, NcclCode*))                                 \
  X(NcclCode, comm_finalize, "ncclCommFinalize", (NcclHandle))                                                        \
  X(NcclCode, comm_destroy, "ncclCommDestroy", (NcclHandle))                                                          \
  X(NcclCode, comm_abort, "ncclCommAbort", (NcclHandle))                                                              \
  X(NcclCode, group_start, "ncclGroupStart", ())                                                                      \
  X(NcclCode, group_end, "ncclGroupEnd", ())                                                                          \
  X(NcclCode, all_reduce, "ncclAllReduce",                                                                            \
    (const void*, void*, std::size_t, NcclType, NcclOp, NcclHandle, NcclStream))                                      \
  X(NcclCode, broadcast, "ncclBroadcast", (const void*, void*, std::size_t, NcclType, int, NcclHandle, NcclStream))   \
  X(NcclCode, reduce, "ncclReduce", (const void*, void*, std::size_t, NcclType, NcclOp, int, NcclHandle, NcclStream)) \
  X(NcclCode, all_gather, "ncclAllGather", (const void*, void*, std::size_t, NcclType, NcclHandle, NcclStream))       \
  X(NcclCode, reduce_scatter, "ncclReduceScatter",                                                                    \
    (const void*, void*, std::size_t, NcclType, NcclOp, NcclHandle, NcclStream))                                      \
  X(NcclCode, send, "ncclSend", (const void*, std::size_t, NcclType, int, NcclHandle, NcclStream))                    \
  X(NcclCode, recv, "ncclRecv", (void*, std::size_t, NcclType, int, NcclHandle, NcclStream))

// The functions of the library that libhvd uses.
struct NcclFunctions {
  NcclCode (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(NcclCode) = nullptr;
#define HVD_NCCL_MEMBER(result, member, symbol, parameters) result(*member) parameters = nullptr;
  HVD_NCCL_FUNCTIONS(HVD_NCCL_MEMBER)
#undef HVD_NCCL_MEMBER
  // Optional functions: they exist since 2.19, and are null in 2.18.
  NcclCode (*mem_alloc)(void**, std::size_t) = nullptr;
  NcclCode (*mem_free)(void*) = nullptr;
  NcclCode (*comm_register)(NcclHandle, void*, std::size_t, void**) = nullptr;
  NcclCode (*comm_deregister)(NcclHandle, void*) = nullptr;
};

}  // namespace hvd
