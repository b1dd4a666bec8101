#include "runtime/execute/row_plan.h"

#include "runtime/core/shape.h"

namespace hvd {
namespace {

// The bytes of one row of a tensor that has at least one dimension. Its shape was checked, but it may have no rows.
std::size_t row_bytes_of(const Submission& what) {
  std::vector<std::int64_t> shape = what.shape;
  shape.front() = 1;
  return size_bytes_of(shape, what.dtype).value_or(0);
}

}  // namespace

Result<RowShare> share_of(const Submission& what, std::int64_t rows) {
  RowShare share;
  share.shape = what.shape;
  share.shape.front() = rows;
  const auto bytes = size_bytes_of(share.shape, what.dtype);
  if (!bytes) {
    return Error(Code::kResource, "a result of shape " + shape_text(share.shape) + " is larger than any memory");
  }
  share.size_bytes = *bytes;
  return share;
}

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

Result<std::int64_t> gathered_rows(const Response& response, std::size_t tensor, const RankMap& map) {
  const auto size = static_cast<std::size_t>(map.size);
  std::int64_t sum = 0;
  for (const std::int64_t extent : std::span(response.first_dims).subspan(tensor * size, size)) {
    if (__builtin_add_overflow(sum, extent, &sum)) {
      return Error(Code::kProtocol, "impossible extents of an allgather");
    }
  }
  return sum;
}

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

Result<AlltoallPlan> plan_alltoall(const Submission& what, const RankMap& map, Backend& backend, Interrupt& interrupt) {
  const auto size = static_cast<std::size_t>(map.size);
  if (what.shape.empty() || what.splits.size() != size) {
    return Error(Code::kProtocol, "the coordinator ordered an alltoall of a scalar");
  }
  std::vector<std::int32_t> splits(size * size);  // [from * size + to]
  const std::vector<std::size_t> row_of_splits(size, size * sizeof(std::int32_t));
  HVD_TRY(backend.allgather(what.splits.data(), row_of_splits, splits.data(), interrupt));
  AlltoallPlan plan;
  for (const std::int32_t rows : splits) {
    std::size_t product = 0;
    if (rows < 0 || __builtin_mul_overflow(static_cast<std::size_t>(rows), row_bytes_of(what), &product)) {
      return Error(Code::kProtocol, "impossible number of rows " + std::to_string(rows) + " in an alltoall");
    }
    plan.sizes.push_back(product);
  }
  for (std::size_t from = 0; from < size; ++from) {
    plan.received.push_back(splits[from * size + static_cast<std::size_t>(map.rank)]);
    plan.rows += plan.received.back();
  }
  return plan;
}

}  // namespace hvd
