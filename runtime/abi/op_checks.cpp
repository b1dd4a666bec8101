#include "runtime/abi/op_checks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "runtime/controller/message.h"
#include "runtime/core/shape.h"

namespace hvd {
namespace {

static_assert(HVD_MAX_DIMS == kMaxDims);
static_assert(HVD_BOOL == static_cast<int>(Dtype::kBool) && HVD_PRODUCT == static_cast<int>(ReduceOp::kProduct) &&
              HVD_JOIN == static_cast<int>(OpKind::kJoin) && HVD_MAX_GROUP == control_wire::kMaxGroupTensors &&
              HVD_MISMATCH == static_cast<int>(Code::kMismatch));

// The sizes of the struct by its version.
constexpr std::initializer_list<std::size_t> kOpSizes = {sizeof(hvd_op)};

Error invalid(const std::string& text) {
  return Error(Code::kInvalid, text);
}

// Returns what an error calls the operation: its name, else its kind.
std::string title_of(const hvd_op& op) {
  const std::size_t length = op.name == nullptr ? 0 : ::strnlen(op.name, control_wire::kMaxNameBytes + 1);
  if (length > 0 && length <= control_wire::kMaxNameBytes) {
    return "'" + std::string(op.name, length) + "'";
  }
  const bool has_kind = op.kind >= HVD_ALLREDUCE && op.kind <= HVD_JOIN;
  return has_kind ? lower_name_of(static_cast<OpKind>(op.kind)) : "hvd_op";
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

Result<void> read_name(const hvd_op& op, Submission& out) {
  if (op.name == nullptr) {
    return {};
  }
  const std::size_t length = ::strnlen(op.name, control_wire::kMaxNameBytes + 1);
  if (length == 0 || length > control_wire::kMaxNameBytes) {
    return invalid("name must have 1 to " + number(control_wire::kMaxNameBytes) +
                   " bytes (NULL: one is made); this one is " + (length == 0 ? "empty" : "longer"));
  }
  out.name.assign(op.name, length);
  return {};
}

Result<void> read_shape(const hvd_op& op, Submission& out) {
  if (op.ndim < 0 || op.ndim > HVD_MAX_DIMS) {
    return invalid("ndim is " + number(op.ndim) + ", expected 0 to " + number(HVD_MAX_DIMS));
  }
  if (op.ndim > 0 && op.shape == nullptr) {
    return invalid("shape is NULL, but ndim is " + number(op.ndim));
  }
  for (std::int32_t i = 0; i < op.ndim; ++i) {
    if (op.shape[i] < 0) {
      return invalid("shape[" + number(i) + "] is " + number(op.shape[i]) + ", expected at least 0");
    }
    out.shape.push_back(op.shape[i]);
  }
  if (!size_bytes_of(out.shape, out.dtype)) {
    return invalid("shape " + shape_text(out.shape) + " is larger than any memory");
  }
  return {};
}

Result<void> read_reduction(const hvd_op& op, Submission& out) {
  if (!is_reduce_op(op.reduce_op)) {
    return invalid(
        "reduce_op is " + number(op.reduce_op) +
        ", expected HVD_AVERAGE (0), HVD_SUM (1), HVD_ADASUM (2), HVD_MIN (3), HVD_MAX (4) or HVD_PRODUCT (5)");
  }
  out.op = static_cast<ReduceOp>(op.reduce_op);
  if (out.op == ReduceOp::kAdasum && out.kind != OpKind::kAllreduce) {
    return invalid("HVD_ADASUM is an operator of allreduce only, not of " + std::string(name_of(out.kind)));
  }
  if (out.op == ReduceOp::kAdasum && !is_floating(out.dtype)) {
    return invalid("Adasum is of float16, bfloat16, float32 and float64, not of " + std::string(name_of(out.dtype)) +
                   "; use HVD_SUM or HVD_AVERAGE");
  }
  if (!std::isfinite(op.prescale) || !std::isfinite(op.postscale)) {
    return invalid("prescale and postscale must be finite numbers");
  }
  const bool is_scaled = op.prescale != 1.0 || op.postscale != 1.0;
  if (out.dtype == Dtype::kBool && (out.op == ReduceOp::kAverage || is_scaled)) {
    return invalid("a bool cannot be averaged or scaled; use HVD_SUM or HVD_MAX (or), HVD_MIN or HVD_PRODUCT (and)");
  }
  out.prescale = op.prescale;
  out.postscale = op.postscale;
  return {};
}

// An alltoall of a scalar gets no rows here; all ranks then receive an error for it.
Result<void> read_splits(const hvd_op& op, int size, Submission& out) {
  const std::int64_t rows = out.shape.empty() ? 0 : out.shape.front();
  const bool has_splits = op.splits != nullptr || op.split_count != 0;
  if (!has_splits) {
    if (rows % size != 0) {
      return invalid("shape[0] is " + number(rows) + ", which " + number(size) +
                     " ranks cannot share evenly; give splits");
    }
    const std::int64_t share = rows / size;
    if (share > INT32_MAX) {
      return invalid("shape[0] is " + number(rows) + ", more than " + number(INT32_MAX) + " rows for each rank");
    }
    out.splits.assign(static_cast<std::size_t>(size), static_cast<std::int32_t>(share));
    return {};
  }
  if (op.splits == nullptr || op.split_count != size) {
    return invalid("splits has " + number(op.splits == nullptr ? 0 : op.split_count) + " entries, but there are " +
                   number(size) + " ranks");
  }
  std::int64_t sum = 0;
  for (std::int32_t i = 0; i < size; ++i) {
    if (op.splits[i] < 0) {
      return invalid("splits[" + number(i) + "] is " + number(op.splits[i]) + ", expected at least 0");
    }
    sum += op.splits[i];
  }
  if (sum > rows) {
    return invalid("splits add up to " + number(sum) + ", but shape[0] is " + number(rows));
  }
  out.splits.assign(op.splits, op.splits + size);
  return {};
}

// Whether input and output, of this many bytes each, overlap without being the same.
bool do_overlap(const hvd_op& op, std::size_t bytes) {
  const auto from = reinterpret_cast<std::uintptr_t>(op.input);
  const auto to = reinterpret_cast<std::uintptr_t>(op.output);
  return from != to && (from < to ? to - from : from - to) < bytes;
}

// Checks which buffers an operation needs on this rank, and that they do not overlap partly.
Result<void> read_buffers(const hvd_op& op, int rank, Submission& out) {
  out.input = op.input;
  out.output = op.output;
  const std::size_t bytes = size_bytes_of(out.shape, out.dtype).value_or(0);
  if (is_cut_by_rank(out.kind) && op.output != nullptr) {
    return invalid("output must be NULL for " + std::string(name_of(out.kind)) +
                   "; the runtime allocates it, see hvd_result");
  }
  const bool is_input_used = out.kind != OpKind::kBroadcast || op.root_rank == rank;
  if (bytes > 0 && is_input_used && op.input == nullptr) {
    return invalid("input is NULL, but the tensor has " + std::to_string(bytes) + " bytes");
  }
  if (is_cut_by_rank(out.kind)) {
    return {};
  }
  if (bytes > 0 && op.output == nullptr) {
    return invalid("output is NULL, but the tensor has " + std::to_string(bytes) + " bytes");
  }
  if (is_input_used && do_overlap(op, bytes)) {
    return invalid("input and output overlap; they must be the same or apart");
  }
  return {};
}

}  // namespace

Result<void> check_struct(const char* what, std::uint32_t size, std::uint32_t version,
                          std::initializer_list<std::size_t> sizes) {
  if (version > sizes.size()) {
    return Error(Code::kInvalid, std::string(what) + ": version " + std::to_string(version) +
                                     " is of a newer hvd.h than this library; update libhvd");
  }
  const std::size_t expected_size = version == 0 ? *sizes.begin() : *(sizes.begin() + (version - 1));
  if (version == 0 || size < expected_size) {
    return Error(Code::kInvalid, std::string(what) + ": size is " + std::to_string(size) + " and version " +
                                     std::to_string(version) + ", expected at least " + std::to_string(expected_size) +
                                     " and 1; fill it with its HVD_..._INIT macro");
  }
  return {};
}

namespace {

Result<void> read_operation(const hvd_op& op, const SetTable& sets, Submission& out) {
  if (op.kind < HVD_ALLREDUCE || op.kind > HVD_JOIN) {
    return invalid("kind is " + number(op.kind) + ", expected 0 to " + number(HVD_JOIN));
  }
  out.kind = static_cast<OpKind>(op.kind);
  if (out.kind == OpKind::kJoin) {
    if (op.process_set != 0) {
      return invalid("process_set is " + number(op.process_set) + ", but a join is one of all ranks (0)");
    }
    out.name = kJoinName;
    return {};
  }
  out.process_set = op.process_set;
  out.priority = op.priority;
  const std::shared_ptr<const SetPlace> set = sets.find(op.process_set);
  if (set == nullptr) {
    return Error(Code::kNotFound, "there is no process set " + number(op.process_set));
  }
  if (!set->map) {
    return invalid("this rank is not a member of process set " + number(op.process_set));
  }
  const int size = set->map->size;
  HVD_TRY(read_name(op, out));
  if (out.kind == OpKind::kBarrier) {
    return {};
  }
  if (op.device < HVD_DEVICE_CPU) {
    return invalid("device is " + number(op.device) + ", expected HVD_DEVICE_CPU (-1) or a GPU's number");
  }
  out.device = op.device;
  out.stream = op.device == HVD_DEVICE_CPU ? nullptr : op.stream;
  if (!is_dtype(op.dtype)) {
    return invalid("dtype is " + number(op.dtype) + ", expected 0 to " + number(kDtypeCount - 1));
  }
  out.dtype = static_cast<Dtype>(op.dtype);
  HVD_TRY(read_shape(op, out));
  if (is_reduction(out.kind)) {
    HVD_TRY(read_reduction(op, out));
  }
  if (out.kind == OpKind::kBroadcast && !std::binary_search(set->ranks.begin(), set->ranks.end(), op.root_rank)) {
    return invalid("root_rank is " + number(op.root_rank) +
                   (op.process_set == 0 ? ", expected 0 to " + number(size - 1)
                                        : ", which is not of process set " + number(op.process_set)));
  }
  out.root_rank = op.root_rank;
  if (out.kind == OpKind::kAlltoall) {
    HVD_TRY(read_splits(op, size, out));
  }
  HVD_TRY(read_buffers(op, set->ranks[static_cast<std::size_t>(set->map->rank)], out));
  return {};
}

}  // namespace

Result<void> submission_from(const hvd_op& op, const SetTable& sets, Submission& out) {
  HVD_TRY(check_struct("hvd_op", op.size, op.version, kOpSizes));
  auto read = read_operation(op, sets, out);
  return read.ok() ? read : Result<void>(read.error().with_context(title_of(op)));
}

Result<void> submissions_from(std::span<const hvd_op* const> ops, const SetTable& sets, std::span<const OpRef> out) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto which = [i] { return "operation " + std::to_string(i) + " of the group"; };
    if (ops[i] == nullptr) {
      return Error(Code::kInvalid, which() + " is NULL");
    }
    Submission& one = out[i]->what;
    if (const auto checked = submission_from(*ops[i], sets, one); !checked.ok()) {
      return checked.error().with_context(which());
    }
    if (!is_groupable(one.kind)) {
      return Error(Code::kInvalid, which() + " is a " + name_of(one.kind) + ", which cannot be done in groups");
    }
    const Submission& first = out.front()->what;
    if (one.kind != first.kind || one.op != first.op || one.prescale != first.prescale ||
        one.postscale != first.postscale || one.process_set != first.process_set) {
      return Error(Code::kInvalid,
                   which() + " differs from the first in kind, reduce_op, prescale, postscale or process_set");
    }
  }
  return {};
}

std::optional<QuickOp> quick_op_from(const hvd_op& op, const SetPlace& set) {
  const bool is_of_kind = op.kind == HVD_ALLREDUCE || op.kind == HVD_BROADCAST || op.kind == HVD_BARRIER;
  if (!check_struct("hvd_op", op.size, op.version, kOpSizes).ok() || !is_of_kind) {
    return std::nullopt;
  }
  QuickOp quick;
  quick.kind = static_cast<OpKind>(op.kind);
  if (op.name != nullptr) {
    quick.name = std::string_view(op.name, ::strnlen(op.name, QuickPath::kMaxNameBytes + 1));
    if (quick.name.empty() || quick.name.size() > QuickPath::kMaxNameBytes) {
      return std::nullopt;
    }
  }
  if (op.kind == HVD_BARRIER) {
    return quick;
  }
  const bool has_shape = op.ndim == 0 || (op.ndim > 0 && op.ndim <= HVD_MAX_DIMS && op.shape != nullptr);
  if (op.device != HVD_DEVICE_CPU || !is_dtype(op.dtype) || !has_shape) {
    return std::nullopt;
  }
  quick.dtype = static_cast<Dtype>(op.dtype);
  quick.shape = std::span(op.shape, static_cast<std::size_t>(op.ndim));
  const auto bytes = size_bytes_of(quick.shape, quick.dtype);
  if (!bytes || !set.quick->takes(quick.kind, *bytes)) {
    return std::nullopt;
  }
  quick.size_bytes = *bytes;
  if (op.kind == HVD_ALLREDUCE) {
    const bool is_scaled = op.prescale != 1.0 || op.postscale != 1.0;
    if (!is_reduce_op(op.reduce_op) || op.reduce_op == HVD_ADASUM || !std::isfinite(op.prescale) ||
        !std::isfinite(op.postscale) || (op.dtype == HVD_BOOL && (op.reduce_op == HVD_AVERAGE || is_scaled))) {
      return std::nullopt;
    }
    quick.op = static_cast<ReduceOp>(op.reduce_op);
    quick.prescale = op.prescale;
    quick.postscale = op.postscale;
  } else {
    const auto root = std::lower_bound(set.ranks.begin(), set.ranks.end(), op.root_rank);
    if (root == set.ranks.end() || *root != op.root_rank) {
      return std::nullopt;
    }
    quick.root_index = static_cast<std::int32_t>(root - set.ranks.begin());
  }
  if (*bytes > 0 && (op.input == nullptr || op.output == nullptr || do_overlap(op, *bytes))) {
    return std::nullopt;
  }
  quick.input = op.input;
  quick.output = op.output;
  return quick;
}

Result<void> set_of_ranks(const std::int32_t* ranks, std::int32_t count, int size, Submission& out) {
  if (ranks == nullptr || count < 1 || count > size) {
    return Error(Code::kInvalid, "a process set has 1 to " + number(size) + " ranks, not " +
                                     (ranks == nullptr ? "NULL" : number(count)));
  }
  out.kind = OpKind::kSetAdd;
  out.name = "process set";
  out.numbers.assign(ranks, ranks + count);
  std::sort(out.numbers.begin(), out.numbers.end());
  for (std::size_t i = 0; i < out.numbers.size(); ++i) {
    const std::int32_t rank = out.numbers[i];
    if (rank < 0 || rank >= size) {
      return Error(Code::kInvalid,
                   "a process set with rank " + number(rank) + ", but the ranks are 0 to " + number(size - 1));
    }
    if (i > 0 && rank == out.numbers[i - 1]) {
      return Error(Code::kInvalid, "a process set with rank " + number(rank) + " twice");
    }
  }
  return {};
}

Result<void> ask_by_members(int rank, Submission& set) {
  if (!std::binary_search(set.numbers.begin(), set.numbers.end(), rank)) {
    return Error(Code::kInvalid,
                 "rank " + number(rank) + " is no member of the process set; only its members call this");
  }
  set.by_members = true;
  // The name contains a hash (FNV-1a), because the list of ranks may be too long for a name. If two sets have the same
  // name, their ranks get the error that they named different ones.
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::int32_t member : set.numbers) {
    hash = (hash ^ static_cast<std::uint64_t>(member)) * 0x100000001b3U;
  }
  set.name += " by its members " + number(set.numbers.front()) + " to " + number(set.numbers.back()) + ", " +
              std::to_string(hash);
  return {};
}

}  // namespace hvd
