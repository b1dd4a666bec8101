#include "runtime/engine/quick_path.h"

#include <algorithm>
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/core/shape.h"
#include "runtime/engine/executor.h"

namespace hvd {
namespace {

// Where ranks outnumber cores the others come by giving way to them. Longer than a few turns of all of them take; then
// it is better to sleep until they come.
constexpr Duration kYieldsFor = std::chrono::microseconds(100);
// As much as a rank may read of all others together, so that the ordinary way is not the shorter one.
constexpr std::size_t kMaxBytesRead = 32U << 10U;

// Before the data in a box; then come the extents of the shape and the name. Ranks agree when all that is the same.
struct Head {
  std::uint32_t bytes = sizeof(Head);  // with what follows
  OpKind kind{};
  Dtype dtype{};
  ReduceOp op{};
  std::uint8_t ndim = 0;
  std::int32_t root_index = 0;
  std::uint32_t name_bytes = 0;
  std::uint64_t noname = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};
static_assert(sizeof(Head) == 40);  // without holes, since it is compared as bytes

constexpr std::size_t kMaxHeadBytes = sizeof(Head) + kMaxDims * sizeof(std::int64_t) + QuickPath::kMaxNameBytes;
static_assert(kMaxHeadBytes + kCacheLineBytes + QuickPath::kMaxBytes <= ShmRounds::kBoxBytes);

std::size_t write_head(std::uint8_t* box, const QuickOp& op) {
  Head head;
  head.kind = op.kind;
  head.dtype = op.dtype;
  head.op = op.op;
  head.ndim = static_cast<std::uint8_t>(op.shape.size());
  head.root_index = op.root_index;
  head.name_bytes = static_cast<std::uint32_t>(op.name.size());
  head.noname = op.noname;
  head.prescale = op.prescale;
  head.postscale = op.postscale;
  head.bytes = static_cast<std::uint32_t>(sizeof head + op.shape.size_bytes() + op.name.size());
  std::uint8_t* at = box;
  const auto put = [&at](const void* from, std::size_t bytes) {
    if (bytes != 0) {
      std::memcpy(at, from, bytes);
    }
    at += bytes;
  };
  put(&head, sizeof head);
  put(op.shape.data(), op.shape.size_bytes());
  put(op.name.data(), op.name.size());
  return head.bytes;
}

std::size_t data_at(std::size_t head_bytes) {
  return (head_bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

QuickPath::QuickPath(std::shared_ptr<ShmSegment> shm)
    : shm_(std::move(shm)),
      limit_bytes_(std::min(kMaxBytes, kMaxBytesRead / static_cast<std::size_t>(shm_->local_size()))),
      rounds_(shm_->rounds(), shm_->local_size(), shm_->local_rank()) {}

bool QuickPath::try_run(const QuickOp& op) {
  HVD_CHECK(op.size_bytes <= limit_bytes_ && op.name.size() <= kMaxNameBytes && op.shape.size() <= kMaxDims);
  const std::unique_lock lock(mu_, std::try_to_lock);
  std::uint8_t* box = lock.owns_lock() ? rounds_.open() : nullptr;
  if (box == nullptr) {
    return false;
  }
  const std::size_t head_bytes = write_head(box, op);
  const std::size_t at = data_at(head_bytes);
  const bool brings_data = op.kind == OpKind::kAllreduce || op.root_index == shm_->local_rank();
  if (op.size_bytes != 0 && brings_data) {
    std::memcpy(box + at, op.input, op.size_bytes);
    if (op.kind == OpKind::kAllreduce) {
      scale_in_place(box + at, op.size_bytes / size_of(op.dtype), op.dtype, op.prescale);
    }
  }
  if (!spins_) {
    spins_ = shm_->spins();  // all ranks have told their cores by now
  }
  if (!rounds_.post(*spins_, kYieldsFor)) {
    return false;
  }
  const bool is_done = do_all_agree(head_bytes);
  if (is_done) {
    take_result(op, at);
  }
  rounds_.pass();
  return is_done;
}

bool QuickPath::do_all_agree(std::size_t head_bytes) const {
  const std::uint8_t* own = rounds_.box(shm_->local_rank());
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    if (rank != shm_->local_rank() && std::memcmp(rounds_.box(rank), own, head_bytes) != 0) {
      return false;
    }
  }
  return true;
}

// Every rank computes it, in the order of ranks.
void QuickPath::take_result(const QuickOp& op, std::size_t at) const {
  if (op.size_bytes == 0) {
    return;
  }
  if (op.kind == OpKind::kBroadcast) {
    std::memcpy(op.output, rounds_.box(op.root_index) + at, op.size_bytes);
    return;
  }
  const std::size_t count = op.size_bytes / size_of(op.dtype);
  const ReduceOp step = op.op == ReduceOp::kAverage ? ReduceOp::kSum : op.op;
  std::memcpy(op.output, rounds_.box(0) + at, op.size_bytes);
  for (int rank = 1; rank < shm_->local_size(); ++rank) {
    reduce_into(op.output, rounds_.box(rank) + at, count, op.dtype, step);
  }
  scale_in_place(op.output, count, op.dtype, result_factor(op.op, op.dtype, op.postscale, shm_->local_size()));
}

}  // namespace hvd
