// The operations that cut tensors by rank along dimension 0. Their outputs are the runtime's memory, since a rank does
// not know beforehand how much it gets.
#include <cstring>

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

}  // namespace hvd
