#include "runtime/execute/node_quick_path.h"

#include <algorithm>
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/quick_head.h"

namespace hvd {
namespace {

// If there are more ranks than cores, other ranks run only when this one yields. This time is longer than a few turns
// of all of them; after it, it is better to sleep until they come.
constexpr Duration kYieldsFor = std::chrono::microseconds(100);
// In the second round the other ranks come as soon as they have computed their shares, so waiting longer pays. But one
// may have died by then.
constexpr Duration kYieldsForShares = std::chrono::milliseconds(5);

static_assert(kMaxQuickHead + kCacheLineBytes + QuickPath::kMaxBytes <= ShmRounds::kBoxBytes);

std::size_t count_of(const QuickOp& op, std::size_t bytes) {
  return bytes / size_of(op.dtype);
}

const std::uint8_t* bytes_at(const void* data, std::size_t offset) {
  return static_cast<const std::uint8_t*>(data) + offset;
}

}  // namespace

NodeQuickPath::NodeQuickPath(std::shared_ptr<ShmSegment> shm, const Tuning& tuning)
    : shm_(std::move(shm)),
      bytes_(std::min(kMaxBytes, tuning.quick_bytes)),
      whole_bytes_(std::min({kMaxBytes, tuning.quick_whole_bytes,
                             tuning.quick_read_bytes / static_cast<std::size_t>(shm_->local_size())})),
      rounds_(shm_->rounds(), shm_->local_size(), shm_->local_rank()),
      operands_(static_cast<std::size_t>(shm_->local_size())) {}

Result<bool> NodeQuickPath::try_run(const QuickOp& op) {
  HVD_CHECK(takes(op.kind, op.size_bytes) && op.name.size() <= kMaxNameBytes && op.shape.size() <= kMaxDims);
  const std::unique_lock lock(mu_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return false;
  }
  return op.size_bytes <= whole_bytes_ ? run_whole(op) : run_in_shares(op);
}

// Posts the content of `box`, with its head. True: all ranks have posted for the same operation, and their boxes can be
// read until rounds_.pass().
bool NodeQuickPath::meet(const QuickOp& op, Round round, std::uint8_t* box) {
  write_quick_head(box, op, static_cast<std::uint8_t>(round));
  if (!spins_) {
    spins_ = shm_->spins();  // all ranks have reported their cores by now
  }
  if (!rounds_.post(*spins_, round == Round::kInputs ? kYieldsFor : kYieldsForShares)) {
    return false;
  }
  if (!do_all_agree(quick_head_bytes(op))) {
    rounds_.pass();
    return false;
  }
  return true;
}

bool NodeQuickPath::do_all_agree(std::size_t head_bytes) const {
  const std::uint8_t* own = rounds_.box(shm_->local_rank());
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    if (rank != shm_->local_rank() && std::memcmp(rounds_.box(rank), own, head_bytes) != 0) {
      return false;
    }
  }
  return true;
}

bool NodeQuickPath::run_whole(const QuickOp& op) {
  std::uint8_t* box = rounds_.open();
  if (box == nullptr) {
    return false;
  }
  const std::size_t at = quick_data_at(op);
  const bool brings_data = op.kind == OpKind::kAllreduce || op.root_index == shm_->local_rank();
  if (op.size_bytes != 0 && brings_data) {
    std::memcpy(box + at, op.input, op.size_bytes);
    if (op.kind == OpKind::kAllreduce) {
      scale_in_place(box + at, count_of(op, op.size_bytes), op.dtype, op.prescale);
    }
  }
  if (!meet(op, Round::kInputs, box)) {
    return false;
  }
  take_result(op, at);
  rounds_.pass();
  return true;
}

// Every rank computes the result, in the order of ranks.
void NodeQuickPath::take_result(const QuickOp& op, std::size_t at) {
  if (op.size_bytes == 0) {
    return;
  }
  if (op.kind == OpKind::kBroadcast) {
    std::memcpy(op.output, rounds_.box(op.root_index) + at, op.size_bytes);
    return;
  }
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    operands_[static_cast<std::size_t>(rank)] = rounds_.box(rank) + at;
  }
  reduce_operands(op, static_cast<std::uint8_t*>(op.output), op.size_bytes);
}

// Reduces operands_ in the order of ranks.
void NodeQuickPath::reduce_operands(const QuickOp& op, std::uint8_t* result, std::size_t size_bytes) const {
  ReduceTurn turn;
  turn.operands = operands_;
  turn.result = result;
  turn.size_bytes = size_bytes;
  turn.scale = result_scale(op.op, op.postscale, shm_->local_size());
  reduce_turn(turn, op.dtype, combining_op(op.op));
}

// Works as NodeCollectives does: a rank's own share of its input is posted only if it must be scaled. The caller's
// memory is written when all shares are there, so that until then the operation can still take the ordinary way.
bool NodeQuickPath::run_in_shares(const QuickOp& op) {
  std::uint8_t* box = rounds_.open();
  if (box == nullptr) {
    return false;
  }
  const std::size_t at = quick_data_at(op);
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    const Range share = share_of(op, rank);
    const bool is_read = rank != shm_->local_rank() || op.prescale != 1.0;
    if (is_read && share.size() != 0) {
      std::memcpy(box + at + share.begin, bytes_at(op.input, share.begin), share.size());
      scale_in_place(box + at + share.begin, count_of(op, share.size()), op.dtype, op.prescale);
    }
  }
  if (!meet(op, Round::kInputs, box)) {
    return false;
  }
  std::uint8_t* next = rounds_.next_box();
  reduce_share(op, at, next + at);
  rounds_.pass();
  // If this is another box, the next round is void, for all ranks.
  if (rounds_.open() != next || !meet(op, Round::kShares, next)) {
    return false;
  }
  take_shares(op, at);
  rounds_.pass();
  return true;
}

// Shares end at cache lines, so that no two ranks write to the same one.
Range NodeQuickPath::share_of(const QuickOp& op, int rank) const {
  return split(op.size_bytes, static_cast<std::size_t>(shm_->local_size()), static_cast<std::size_t>(rank),
               kCacheLineBytes);
}

// `result` is the address of the data in a box.
void NodeQuickPath::reduce_share(const QuickOp& op, std::size_t at, std::uint8_t* result) {
  const int self = shm_->local_rank();
  const Range share = share_of(op, self);
  if (share.size() == 0) {
    return;
  }
  const bool is_posted = op.prescale != 1.0;
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    const bool is_own = rank == self && !is_posted;
    operands_[static_cast<std::size_t>(rank)] =
        is_own ? bytes_at(op.input, share.begin) : rounds_.box(rank) + at + share.begin;
  }
  reduce_operands(op, result + share.begin, share.size());
}

void NodeQuickPath::take_shares(const QuickOp& op, std::size_t at) const {
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    const Range share = share_of(op, rank);
    if (share.size() != 0) {
      std::memcpy(static_cast<std::uint8_t*>(op.output) + share.begin, rounds_.box(rank) + at + share.begin,
                  share.size());
    }
  }
}

}  // namespace hvd
