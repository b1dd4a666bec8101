#include "runtime/execute/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/execute/op_trace.h"
#include "runtime/execute/row_plan.h"

namespace hvd {
namespace {

Scales scales_of(const Submission& like, int size) {
  return Scales{like.prescale, result_scale(like.op, like.postscale, size)};
}

void copy_input(const Submission& what) {
  const std::size_t bytes = input_bytes(what);
  if (bytes > 0 && what.output != what.input) {
    std::memcpy(what.output, what.input, bytes);
  }
}

// Allocates memory for this operation's share of `rows` rows.
Result<OwnedOutput> allocate_rows(const Submission& what, std::int64_t rows) {
  HVD_TRY_ASSIGN(RowShare share, share_of(what, rows));
  return OwnedOutput::allocate(share.size_bytes, std::move(share.shape));
}

}  // namespace

Scale result_scale(ReduceOp op, double postscale, int size) {
  if (op != ReduceOp::kAverage) {
    return postscale;
  }
  const bool is_power_of_two = (size & (size - 1)) == 0;
  return is_power_of_two ? Scale(postscale / size) : Scale(postscale, size);
}

Result<void> Executor::run(const Response& response, std::span<PendingOp* const> ops, Interrupt& interrupt,
                           OfNode adasum_of_node) {
  const bool is_adasum = !ops.empty() && ops.front()->what.op == ReduceOp::kAdasum;
  const bool is_packed =
      response.kind == OpKind::kAllreduce && ops.size() > 1 && !backend_.takes_pieces() && !is_adasum;
  trace_phase(timeline_, ops, is_packed ? TracePhase::kPack : TracePhase::kMove);
  switch (response.kind) {
    case OpKind::kAllreduce:
      if (is_adasum) {
        return adasum(ops, adasum_of_node, interrupt);
      }
      if (response.is_shared && backend_.takes_shared()) {
        return allreduce_shared(ops, interrupt);
      }
      if (backend_.takes_pieces()) {
        return allreduce_pieces(ops, interrupt);
      }
      return is_packed ? fused_allreduce(ops, interrupt) : allreduce(*ops.front(), interrupt);
    case OpKind::kAllgather:
      return allgather(response, ops, interrupt);
    case OpKind::kReducescatter:
      return reducescatter(ops, interrupt);
    case OpKind::kAlltoall:
      return alltoall(*ops.front(), interrupt);
    case OpKind::kBroadcast:
      return broadcast(*ops.front(), interrupt);
    case OpKind::kSetRemove:
    case OpKind::kBufferAdd:
    case OpKind::kBufferRemove:
      return {};
    case OpKind::kSetAdd:
    case OpKind::kJoin: {
      HVD_TRY_ASSIGN(ops.front()->output, OwnedOutput::allocate(sizeof response.answer, {}));
      std::memcpy(ops.front()->output->data.get(), &response.answer, sizeof response.answer);
      return {};
    }
    case OpKind::kBarrier:
      return backend_.barrier(interrupt);
  }
  return Error(Code::kInternal, "an operation of no kind");
}

Result<void> Executor::reduce(void* data, std::size_t size_bytes, const Submission& like, Interrupt& interrupt) {
  const std::size_t count = size_bytes / size_of(like.dtype);
  if (count == 0) {
    return {};  // true on every rank, since all agreed on the shape
  }
  scale_in_place(data, count, like.dtype, like.prescale);
  HVD_TRY(backend_.allreduce(data, count, like.dtype, combining_op(like.op), interrupt));
  scale_in_place(data, count, like.dtype, result_scale(like.op, like.postscale, map_.size));
  return {};
}

Result<void> Executor::allreduce_pieces(std::span<PendingOp* const> ops, Interrupt& interrupt) {
  pieces_.clear();
  for (const PendingOp* op : ops) {
    if (const std::size_t bytes = input_bytes(op->what); bytes != 0) {
      pieces_.push_back(Piece{op->what.input, op->what.output, bytes});
    }
  }
  if (pieces_.empty()) {
    return {};  // on every rank, since all agreed on the shapes
  }
  const Submission& like = ops.front()->what;
  return backend_.allreduce_pieces(pieces_, like.dtype, combining_op(like.op), scales_of(like, map_.size), interrupt);
}

// If all ranks have agreed on shared_at, it is within a buffer of each.
Result<void> Executor::allreduce_shared(std::span<PendingOp* const> ops, Interrupt& interrupt) {
  shared_pieces_.clear();
  for (const PendingOp* op : ops) {
    HVD_CHECK(op->what.shared_at >= 0);
    if (const std::size_t bytes = input_bytes(op->what); bytes != 0) {
      shared_pieces_.push_back(SharedPiece{static_cast<std::size_t>(op->what.shared_at), bytes});
    }
  }
  if (shared_pieces_.empty()) {
    return {};
  }
  const Submission& like = ops.front()->what;
  return backend_.allreduce_shared(shared_pieces_, like.dtype, combining_op(like.op), scales_of(like, map_.size),
                                   interrupt);
}

Result<void> Executor::allreduce(PendingOp& op, Interrupt& interrupt) {
  copy_input(op.what);
  return reduce(op.what.output, input_bytes(op.what), op.what, interrupt);
}

// Each tensor is combined separately, in its own memory.
Result<void> Executor::adasum(std::span<PendingOp* const> ops, OfNode of_node, Interrupt& interrupt) {
  const Submission& like = ops.front()->what;
  std::vector<MutableBytes> tensors;
  for (const PendingOp* op : ops) {
    copy_input(op->what);
    const std::size_t bytes = input_bytes(op->what);
    scale_in_place(op->what.output, bytes / size_of(like.dtype), like.dtype, like.prescale);
    if (bytes != 0) {
      tensors.emplace_back(static_cast<std::uint8_t*>(op->what.output), bytes);
    }
  }
  if (tensors.empty()) {
    return {};  // true on every rank, since all agreed on the shapes
  }
  const std::span<const int> nodes = map_.node_of_rank;
  HVD_TRY(backend_.adasum(tensors, like.dtype, of_node == OfNode::kAveraged ? nodes : nodes.first(0), interrupt));
  for (const MutableBytes& tensor : tensors) {
    scale_in_place(tensor.data(), tensor.size() / size_of(like.dtype), like.dtype, like.postscale);
  }
  return {};
}

Result<void> Executor::fused_allreduce(std::span<PendingOp* const> ops, Interrupt& interrupt) {
  HVD_TRY_ASSIGN(const std::span<std::byte> packed, fusion_buffer_.pack(ops));
  trace_phase(timeline_, ops, TracePhase::kMove);
  HVD_TRY(reduce(packed.data(), packed.size(), ops.front()->what, interrupt));
  trace_phase(timeline_, ops, TracePhase::kUnpack);
  fusion_buffer_.unpack(ops);
  return {};
}

Result<int> root_index(std::span<const int> ranks, int root) {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), root);
  if (found == ranks.end() || *found != root) {
    return Error(Code::kProtocol, "the coordinator ordered a broadcast from a rank that is not of the process set");
  }
  return static_cast<int>(found - ranks.begin());
}

Result<void> Executor::broadcast(PendingOp& op, Interrupt& interrupt) {
  const std::size_t bytes = input_bytes(op.what);
  if (bytes == 0) {
    return {};
  }
  HVD_TRY_ASSIGN(const int root, root_index(ranks_, op.what.root_rank));
  if (root == map_.rank) {
    copy_input(op.what);
  }
  return backend_.broadcast(op.what.output, bytes, root, interrupt);
}

// The operations that split tensors by rank along dimension 0. The runtime allocates their outputs, since a rank does
// not know beforehand how much it receives.

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
