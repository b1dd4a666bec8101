// The kinds of collective operation. Their numbers are those of hvd.h and are sent between ranks, so they never change.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/text.h"
#include "runtime/core/dtype.h"

namespace hvd {

enum class OpKind : std::uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kReducescatter = 4,
  kAlltoall = 5,
  kJoin = 6,
  // These are not kinds of hvd_op: by them all ranks of the job make a process set, or remove one.
  kSetAdd = 7,
  kSetRemove = 8,
  // By these all ranks make a buffer for in-place reductions, or free it.
  kBufferAdd = 9,
  kBufferRemove = 10
};
inline constexpr int kOpKindCount = 11;

// The name of every rank's join operation.
inline constexpr const char* kJoinName = "join";

// The kind's name as Horovod's messages spell it, such as "ALLREDUCE".
constexpr const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kAllreduce:
      return "ALLREDUCE";
    case OpKind::kAllgather:
      return "ALLGATHER";
    case OpKind::kBroadcast:
      return "BROADCAST";
    case OpKind::kBarrier:
      return "BARRIER";
    case OpKind::kReducescatter:
      return "REDUCESCATTER";
    case OpKind::kAlltoall:
      return "ALLTOALL";
    case OpKind::kJoin:
      return "JOIN";
    case OpKind::kSetAdd:
      return "PROCESS SET ADD";
    case OpKind::kSetRemove:
      return "PROCESS SET REMOVE";
    case OpKind::kBufferAdd:
      return "BUFFER ADD";
    case OpKind::kBufferRemove:
      return "BUFFER REMOVE";
  }
  return "?";
}

// The kind's name in lower case: "allreduce".
inline std::string lower_name_of(OpKind kind) {
  std::string name;
  for (const char* c = name_of(kind); *c != '\0'; ++c) {
    name += *c >= 'A' && *c <= 'Z' ? static_cast<char>(*c - 'A' + 'a') : *c;
  }
  return name;
}

// The name given to an operation without one: "allreduce.noname.7".
inline std::string noname_of(OpKind kind, std::uint64_t number) {
  return lower_name_of(kind) + ".noname." + std::to_string(number);
}

// Returns the number in a name of noname_of(); 0: it is none of this kind.
inline std::uint64_t noname_number(OpKind kind, std::string_view name) {
  const std::string prefix = lower_name_of(kind) + ".noname.";
  return name.starts_with(prefix) ? parse_number<std::uint64_t>(name.substr(prefix.size())).value_or(0) : 0;
}

// Names of this form are never used again.
inline bool is_noname(std::string_view name) {
  return name.find(".noname.") != std::string_view::npos;
}

constexpr const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
      return "AVERAGE";
    case ReduceOp::kSum:
      return "SUM";
    case ReduceOp::kAdasum:
      return "ADASUM";
    case ReduceOp::kMin:
      return "MIN";
    case ReduceOp::kMax:
      return "MAX";
    case ReduceOp::kProduct:
      return "PRODUCT";
  }
  return "?";
}

// These functions check numbers that come from callers and from other ranks.
constexpr bool is_reduce_op(std::int64_t number) {
  return number >= 0 && number <= 5;
}
constexpr bool is_op_kind(std::int64_t number) {
  return number >= 0 && number < kOpKindCount;
}
// Kinds of which several tensors may form one group, and be fused.
constexpr bool is_groupable(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kAllgather || kind == OpKind::kReducescatter;
}
// Kinds that have an operator and scales.
constexpr bool is_reduction(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}
// Kinds that take no tensor.
constexpr bool has_no_tensor(OpKind kind) {
  return kind == OpKind::kBarrier || kind == OpKind::kJoin || kind == OpKind::kSetAdd || kind == OpKind::kSetRemove ||
         kind == OpKind::kBufferRemove;
}
// Kinds that make or remove process sets.
constexpr bool is_of_sets(OpKind kind) {
  return kind == OpKind::kSetAdd || kind == OpKind::kSetRemove;
}
// Kinds that move no data, but change what exists on all ranks.
constexpr bool is_change(OpKind kind) {
  return is_of_sets(kind) || kind == OpKind::kBufferAdd || kind == OpKind::kBufferRemove;
}
// Kinds that refer to process sets or buffers by number.
constexpr bool has_numbers(OpKind kind) {
  return is_of_sets(kind) || kind == OpKind::kBufferRemove;
}
// Kinds that split tensors by rank along dimension 0, which scalars do not have. The runtime allocates their results.
constexpr bool is_cut_by_rank(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kReducescatter || kind == OpKind::kAlltoall;
}
// Kinds to which ranks may bring different numbers of rows.
constexpr bool has_own_rows(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}
constexpr bool is_dtype(std::int64_t number) {
  return number >= 0 && number < kDtypeCount;
}

}  // namespace hvd
