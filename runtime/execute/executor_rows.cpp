// The operations that split tensors by rank along dimension 0. The runtime allocates their outputs, since a rank does
// not know beforehand how much it receives.
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/row_plan.h"

namespace hvd {
namespace {

// Allocates memory for this operation's share of `rows` rows.
Result<OwnedOutput> allocate_rows(const Submission& what, std::int64_t rows) {
  HVD_TRY_ASSIGN(RowShare share, share_of(what, rows));
  return OwnedOutput::allocate(share.size_bytes, std::move(share.shape));
}

}  // namespace

Result<void> Executor::allgather(const Response& response, std::span<PendingOp* const> ops, Interrupt& interrupt) {
  HVD_TRY_ASSIGN(const RowLayout layout, gathered_layout(response, ops, map_));
  std::vector<void*> outputs;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    HVD_TRY_ASSIGN(const std::int64_t rows, gathered_rows(response, i, map_));
    HVD_TRY_ASSIGN(ops[i]->output, allocate_rows(ops[i]->what, rows));
    outputs.push_back(ops[i]->output->data.get());
  }
  if (layout.total_bytes() == 0) {
    return {};
  }
  if (ops.size() == 1) {
    return backend_.allgather(ops.front()->what.input, layout.rank_bytes(), outputs.front(), interrupt);
  }
  // The memory holds this rank's rows first, and then the rows of all.
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
    return {};  // true on every rank, since all agreed on the shapes
  }
  const std::size_t element = size_of(like.dtype);
  const std::size_t own_bytes = layout.rank_bytes()[static_cast<std::size_t>(map_.rank)];
  const void* input = inputs.front();
  std::byte* own = ops.front()->output->data.get();
  if (ops.size() > 1 || like.prescale != 1.0) {
    // The memory holds the input of the reduction first, and then this rank's part of the result.
    HVD_TRY_ASSIGN(const std::span<std::byte> memory, fusion_buffer_.reserve(layout.total_bytes() + own_bytes));
    layout.pack(inputs, memory.data());
    scale_in_place(memory.data(), layout.total_bytes() / element, like.dtype, like.prescale);
    input = memory.data();
    own = ops.size() > 1 ? memory.data() + layout.total_bytes() : own;
  }
  const ReduceOp op = combining_op(like.op);
  HVD_TRY(backend_.reducescatter(input, layout.rank_bytes(), own, like.dtype, op, interrupt));
  scale_in_place(own, own_bytes / element, like.dtype, result_scale(like.op, like.postscale, map_.size));
  for (std::size_t i = 0; ops.size() > 1 && i < ops.size(); ++i) {
    const OwnedOutput& output = *ops[i]->output;
    std::memcpy(output.data.get(), own, output.size_bytes);
    own += output.size_bytes;
  }
  return {};
}

Result<void> Executor::alltoall(PendingOp& op, Interrupt& interrupt) {
  HVD_TRY_ASSIGN(AlltoallPlan plan, plan_alltoall(op.what, map_, backend_, interrupt));
  HVD_TRY_ASSIGN(op.output, allocate_rows(op.what, plan.rows));
  op.output->received_splits = std::move(plan.received);
  return backend_.alltoall(op.what.input, plan.sizes, op.output->data.get(), interrupt);
}

}  // namespace hvd
