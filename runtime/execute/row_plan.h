// RowPlan: what each rank brings and gets of operations that cut tensors by rank along dimension 0, wherever the memory
// is. Functions on values, and one exchange; thread: engine only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algo/row_layout.h"
#include "runtime/backend/backend.h"
#include "runtime/controller/message.h"
#include "runtime/core/rank_map.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// This operation's share of `rows` rows: its shape and bytes; kResource when that is more than any memory.
struct RowShare {
  std::vector<std::int64_t> shape;
  std::size_t size_bytes = 0;
};
Result<RowShare> share_of(const Submission& what, std::int64_t rows);

// The rows that each rank brings of each tensor, and what they are together; checked, since they come from other ranks.
Result<RowLayout> gathered_layout(const Response& response, std::span<PendingOp* const> ops, const RankMap& map);
Result<std::int64_t> gathered_rows(const Response& response, std::size_t tensor, const RankMap& map);
// Of a reducescatter: every rank brings all rows; these are the ones that each gets.
Result<RowLayout> scattered_layout(std::span<PendingOp* const> ops, int size);

// Who sends how much to whom is not the coordinator's business: the ranks tell each other.
struct AlltoallPlan {
  std::vector<std::size_t> sizes;      // bytes, [from * size + to]
  std::int64_t rows = 0;               // that this rank gets
  std::vector<std::int32_t> received;  // of them, from each rank
};
Result<AlltoallPlan> plan_alltoall(const Submission& what, const RankMap& map, Backend& backend, Interrupt& interrupt);

}  // namespace hvd
