// These functions compute which rows each rank brings and receives in operations that split tensors by rank along
// dimension 0. They serve host and device memory alike. All work on values, but for one exchange. Thread: engine only.
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

// RowShare is this operation's share of `rows` rows: its shape and bytes. kResource: it is larger than any memory.
struct RowShare {
  std::vector<std::int64_t> shape;
  std::size_t size_bytes = 0;
};
Result<RowShare> share_of(const Submission& what, std::int64_t rows);

// Returns the rows that each rank brings of each tensor, and their sums. They are checked, since they come from other
// ranks.
Result<RowLayout> gathered_layout(const Response& response, std::span<PendingOp* const> ops, const RankMap& map);
Result<std::int64_t> gathered_rows(const Response& response, std::size_t tensor, const RankMap& map);
// For a reducescatter, every rank brings all rows; this returns the rows that each receives.
Result<RowLayout> scattered_layout(std::span<PendingOp* const> ops, int size);

// AlltoallPlan holds who sends how much to whom. The coordinator does not need it, so the ranks send it to each other.
struct AlltoallPlan {
  std::vector<std::size_t> sizes;      // bytes, [from * size + to]
  std::int64_t rows = 0;               // the number that this rank receives
  std::vector<std::int32_t> received;  // how many of them come from each rank
};
Result<AlltoallPlan> plan_alltoall(const Submission& what, const RankMap& map, Backend& backend, Interrupt& interrupt);

}  // namespace hvd
