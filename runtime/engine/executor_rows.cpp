// The operations that cut tensors by rank along dimension 0. Their outputs are the runtime's memory, since a rank does
// not know beforehand how much it gets.
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/algo/row_layout.h"
#include "runtime/core/shape.h"
#include "runtime/engine/executor.h"

namespace hvd {
namespace {

// Bytes of one row of a tensor that has at least one dimension; its shape was checked, but may have no rows.
std::size_t row_bytes_of(const Submission& what) {
  std::vector<std::int64_t> shape = what.shape;
  shape.front() = 1;
  return size_bytes_of(shape, what.dtype).value_or(0);
}

// Memory for this operation's share of `rows` rows.
Result<OwnedOutput> allocate_rows(const Submission& what, std::int64_t rows) {
  std::vector<std::int64_t> shape = what.shape;
  shape.front() = rows;
  const auto bytes = size_bytes_of(shape, what.dtype);
  if (!bytes) {
    return Error(Code::kResource, "a result of shape " + shape_text(shape) + " is larger than any memory");
  }
  return OwnedOutput::allocate(*bytes, std::move(shape));
}

// The rows that each rank brings of each tensor, checked: they come from other ranks.
Result<RowLayout> gathered_layout(const Response& response, std::span<PendingOp* const> ops, const RankMap& map) {
  const auto size = static_cast<std::size_t>(map.size);
  const auto rank = static_cast<std::size_t>(map.rank);
  const std::span<const std::int64_t> dims = response.first_dims;
  std::vector<RowLayout::Tensor> tensors;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Submission& what = ops[i]->what;
    if (what.shape.empty() || dims.size() != ops.size() * size || dims[i * size + rank] != what.shape.front()) {
      return Error(Code::kProtocol, "the coordinator's extents of an allgather are not this rank's");
    }
    const auto rows = dims.subspan(i * size, size);
    tensors.push_back({row_bytes_of(what), {rows.begin(), rows.end()}});
  }
  return RowLayout::make(std::move(tensors), map.size);
}

// Every rank brings all rows; these are the ones that each gets.
Result<RowLayout> scattered_layout(std::span<PendingOp* const> ops, int size) {
  std::vector<RowLayout::Tensor> tensors;
  for (const PendingOp* op : ops) {
    if (op->what.shape.empty()) {
      return Error(Code::kProtocol, "the coordinator ordered a reducescatter of a scalar");
    }
    tensors.push_back({row_bytes_of(op->what), even_rows(op->what.shape.front(), size)});
  }
  return RowLayout::make(std::move(tensors), size);
}

Result<std::int64_t> sum_of(std::span<const std::int64_t> rows) {
  std::int64_t sum = 0;
  for (const std::int64_t extent : rows) {
    if (__builtin_add_overflow(sum, extent, &sum)) {
      return Error(Code::kProtocol, "impossible extents of an allgather");
    }
  }
  return sum;
}

}  // namespace

Result<void> Executor::allgather(const Response& response, std::span<PendingOp* const> ops, Interrupt& interrupt) {
  HVD_TRY_ASSIGN(const RowLayout layout, gathered_layout(response, ops, map_));
  const auto size = static_cast<std::size_t>(map_.size);
  std::vector<void*> outputs;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    HVD_TRY_ASSIGN(const std::int64_t rows, sum_of(std::span(response.first_dims).subspan(i * size, size)));
    HVD_TRY_ASSIGN(ops[i]->output, allocate_rows(ops[i]->what, rows));
    outputs.push_back(ops[i]->output->data.get());
  }
  if (layout.total_bytes() == 0) {
    return {};
  }
  if (ops.size() == 1) {
    return backend_.allgather(ops.front()->what.input, layout.rank_bytes(), outputs.front(), interrupt);
  }
  // What this rank brings, and then what all bring.
  const std::size_t own_bytes = layout.rank_bytes()[static_cast<std::size_t>(map_.rank)];
  HVD_TRY_ASSIGN(const std::span<std::byte> memory, fusion_buffer_.reserve(own_bytes + layout.total_bytes()));
  HVD_TRY(fusion_buffer_.pack(ops));
  std::byte* gathered = memory.data() + own_bytes;
  HVD_TRY(backend_.allgather(memory.data(), layout.rank_bytes(), gathered, interrupt));
  layout.unpack(gathered, outputs);
  return {};
}

Result<void> Executor::reducescatter(std::span<PendingOp* const> ops, Interrupt& interrupt) {
  const Submission& like = ops.front()->what;
  HVD_TRY_ASSIGN(const RowLayout layout, scattered_layout(ops, map_.size));
  std::vector<const void*> inputs;
  for (PendingOp* op : ops) {
    const auto rows = even_rows(op->what.shape.front(), map_.size);
    HVD_TRY_ASSIGN(op->output, allocate_rows(op->what, rows[static_cast<std::size_t>(map_.rank)]));
    inputs.push_back(op->what.input);
  }
  if (layout.total_bytes() == 0) {
    return {};  // on every rank, since all agreed on the shapes
  }
  const std::size_t element = size_of(like.dtype);
  const std::size_t own_bytes = layout.rank_bytes()[static_cast<std::size_t>(map_.rank)];
  const void* input = inputs.front();
  std::byte* own = ops.front()->output->data.get();
  if (ops.size() > 1 || like.prescale != 1.0) {
    // What all ranks reduce, and then this rank's part of the result.
    HVD_TRY_ASSIGN(const std::span<std::byte> memory, fusion_buffer_.reserve(layout.total_bytes() + own_bytes));
    layout.pack(inputs, memory.data());
    scale_in_place(memory.data(), layout.total_bytes() / element, like.dtype, like.prescale);
    input = memory.data();
    own = ops.size() > 1 ? memory.data() + layout.total_bytes() : own;
  }
  const ReduceOp op = like.op == ReduceOp::kAverage ? ReduceOp::kSum : like.op;
  HVD_TRY(backend_.reducescatter(input, layout.rank_bytes(), own, like.dtype, op, interrupt));
  scale_in_place(own, own_bytes / element, like.dtype, result_factor(like.op, like.dtype, like.postscale, map_.size));
  for (std::size_t i = 0; ops.size() > 1 && i < ops.size(); ++i) {
    const OwnedOutput& output = *ops[i]->output;
    std::memcpy(output.data.get(), own, output.size_bytes);
    own += output.size_bytes;
  }
  return {};
}

// Who sends how many rows to whom is not the coordinator's business: the ranks tell each other first.
Result<void> Executor::alltoall(PendingOp& op, Interrupt& interrupt) {
  const Submission& what = op.what;
  const auto size = static_cast<std::size_t>(map_.size);
  if (what.shape.empty() || what.splits.size() != size) {
    return Error(Code::kProtocol, "the coordinator ordered an alltoall of a scalar");
  }
  std::vector<std::int32_t> splits(size * size);  // [from * size + to]
  const std::vector<std::size_t> row_of_splits(size, size * sizeof(std::int32_t));
  HVD_TRY(backend_.allgather(what.splits.data(), row_of_splits, splits.data(), interrupt));
  std::vector<std::size_t> bytes;
  for (const std::int32_t rows : splits) {
    std::size_t product = 0;
    if (rows < 0 || __builtin_mul_overflow(static_cast<std::size_t>(rows), row_bytes_of(what), &product)) {
      return Error(Code::kProtocol, "impossible number of rows " + std::to_string(rows) + " in an alltoall");
    }
    bytes.push_back(product);
  }
  std::int64_t rows = 0;
  std::vector<std::int32_t> received;
  for (std::size_t from = 0; from < size; ++from) {
    received.push_back(splits[from * size + static_cast<std::size_t>(map_.rank)]);
    rows += received.back();
  }
  HVD_TRY_ASSIGN(op.output, allocate_rows(what, rows));
  op.output->received_splits = std::move(received);
  return backend_.alltoall(what.input, bytes, op.output->data.get(), interrupt);
}

}  // namespace hvd
