// What we say of NCCL's interface, against the nccl.h of this machine; compiled where there is one.
#include "runtime/nccl/nccl_abi.h"

#include <cstddef>
#include <type_traits>

#include <doctest/doctest.h>
#include <nccl.h>

namespace hvd {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(std::is_same_v<NcclHandle, ncclComm_t>);

constexpr bool is_same(NcclCode ours, ncclResult_t theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(is_same(NcclCode::kSuccess, ncclSuccess) &&
              is_same(NcclCode::kUnhandledCudaError, ncclUnhandledCudaError) &&
              is_same(NcclCode::kSystemError, ncclSystemError) &&
              is_same(NcclCode::kInternalError, ncclInternalError) &&
              is_same(NcclCode::kInvalidArgument, ncclInvalidArgument) &&
              is_same(NcclCode::kInvalidUsage, ncclInvalidUsage) && is_same(NcclCode::kRemoteError, ncclRemoteError) &&
              is_same(NcclCode::kInProgress, ncclInProgress));

constexpr bool is_same(NcclType ours, ncclDataType_t theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(is_same(NcclType::kInt8, ncclInt8) && is_same(NcclType::kUint8, ncclUint8) &&
              is_same(NcclType::kInt32, ncclInt32) && is_same(NcclType::kUint32, ncclUint32) &&
              is_same(NcclType::kInt64, ncclInt64) && is_same(NcclType::kUint64, ncclUint64) &&
              is_same(NcclType::kFloat16, ncclFloat16) && is_same(NcclType::kFloat32, ncclFloat32) &&
              is_same(NcclType::kFloat64, ncclFloat64) && is_same(NcclType::kBfloat16, ncclBfloat16));

constexpr bool is_same(NcclOp ours, ncclRedOp_t theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(is_same(NcclOp::kSum, ncclSum) && is_same(NcclOp::kProduct, ncclProd) && is_same(NcclOp::kMax, ncclMax) &&
              is_same(NcclOp::kMin, ncclMin));
static_assert(kNcclNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(nccl_version(2, 30, 1) == NCCL_VERSION(2, 30, 1));

// The beginning of theirs, however long it has become.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t) && NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));

// A function's type, with the types of theirs in the place of ours.
template <typename Ours>
struct InTheirWords {
  using type = Ours;
};
template <>
struct InTheirWords<NcclCode> {
  using type = ncclResult_t;
};
template <>
struct InTheirWords<NcclType> {
  using type = ncclDataType_t;
};
template <>
struct InTheirWords<NcclOp> {
  using type = ncclRedOp_t;
};
template <>
struct InTheirWords<NcclId> {
  using type = ncclUniqueId;
};
template <>
struct InTheirWords<NcclConfig> {
  using type = ncclConfig_t;
};
template <typename Ours>
struct InTheirWords<Ours*> {
  using type = typename InTheirWords<Ours>::type*;
};
template <typename Ours, typename... Arguments>
struct InTheirWords<Ours (*)(Arguments...)> {
  using type = typename InTheirWords<Ours>::type (*)(typename InTheirWords<Arguments>::type...);
};

template <typename Ours, typename Theirs>
constexpr bool is_type = std::is_same_v<typename InTheirWords<Ours>::type, Theirs*>;

using F = NcclFunctions;
static_assert(is_type<decltype(F::get_version), decltype(ncclGetVersion)>);
static_assert(is_type<decltype(F::get_error_string), decltype(ncclGetErrorString)>);
static_assert(is_type<decltype(F::get_last_error), decltype(ncclGetLastError)>);
static_assert(is_type<decltype(F::get_unique_id), decltype(ncclGetUniqueId)>);
static_assert(is_type<decltype(F::comm_init_rank_config), decltype(ncclCommInitRankConfig)>);
static_assert(is_type<decltype(F::comm_split), decltype(ncclCommSplit)>);
static_assert(is_type<decltype(F::comm_get_async_error), decltype(ncclCommGetAsyncError)>);
static_assert(is_type<decltype(F::comm_finalize), decltype(ncclCommFinalize)>);
static_assert(is_type<decltype(F::comm_destroy), decltype(ncclCommDestroy)>);
static_assert(is_type<decltype(F::comm_abort), decltype(ncclCommAbort)>);
static_assert(is_type<decltype(F::group_start), decltype(ncclGroupStart)>);
static_assert(is_type<decltype(F::group_end), decltype(ncclGroupEnd)>);
static_assert(is_type<decltype(F::all_reduce), decltype(ncclAllReduce)>);
static_assert(is_type<decltype(F::broadcast), decltype(ncclBroadcast)>);
static_assert(is_type<decltype(F::reduce), decltype(ncclReduce)>);
static_assert(is_type<decltype(F::all_gather), decltype(ncclAllGather)>);
static_assert(is_type<decltype(F::reduce_scatter), decltype(ncclReduceScatter)>);
static_assert(is_type<decltype(F::send), decltype(ncclSend)>);
static_assert(is_type<decltype(F::recv), decltype(ncclRecv)>);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
static_assert(is_type<decltype(F::mem_alloc), decltype(ncclMemAlloc)>);
static_assert(is_type<decltype(F::mem_free), decltype(ncclMemFree)>);
static_assert(is_type<decltype(F::comm_register), decltype(ncclCommRegister)>);
static_assert(is_type<decltype(F::comm_deregister), decltype(ncclCommDeregister)>);
#endif

}  // namespace

TEST_CASE("NCCL's interface is as we say") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  CHECK(ours.magic == theirs.magic);
}

}  // namespace hvd
