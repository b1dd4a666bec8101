#include "runtime/execute/host_quick_path.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/quick_head.h"

namespace hvd {
namespace {

// A rank waits so long for the others of its node, as kYieldsFor in node_quick_path.cpp.
constexpr Duration kMeetsFor = std::chrono::microseconds(100);
// A leader reads and reduces this much by itself; with more, all ranks of the node should do a part.
constexpr std::size_t kMostRead = 256U << 10U;
// When the job has ended on this rank, its leader may still be about to post what it has finished before. It waits for
// less than this itself.
constexpr Duration kTimeAfterEnd = std::chrono::seconds(1);
// A leader's box of the second round: a byte that says whether the round is done, and the result.
constexpr std::size_t kResultAt = kCacheLineBytes;

static_assert(kMaxQuickHead + kCacheLineBytes + QuickPath::kMaxBytes <= ShmRounds::kBoxBytes);
static_assert(kMaxQuickHead <= HostLink::kMostHead && QuickPath::kMaxBytes <= HostLink::kMostData);

std::size_t limit_of(const RankMap& map, const Tuning& tuning) {
  std::vector<std::size_t> on_node(static_cast<std::size_t>(map.node_count));
  for (const int node : map.node_of_rank) {
    ++on_node[static_cast<std::size_t>(node)];
  }
  const std::size_t most = *std::max_element(on_node.begin(), on_node.end());
  return std::min({QuickPath::kMaxBytes, tuning.quick_bytes, tuning.pairs_bytes,
                   most == 1 ? QuickPath::kMaxBytes : kMostRead / most});
}

std::size_t count_of(const QuickOp& op) {
  return op.size_bytes / size_of(op.dtype);
}

// SumData is the data of an allreduce: partial results, and at last the result, which is not scaled yet.
class SumData final : public RoundData {
 public:
  SumData(const QuickOp& op, const std::uint8_t* input, std::uint8_t* partial, std::uint8_t* result)
      : op_(op), own_(input), partial_(partial), result_(result) {}
  [[nodiscard]] std::size_t size_bytes() const override { return op_.size_bytes; }
  [[nodiscard]] Bytes own() const override { return {own_, op_.size_bytes}; }
  bool take(Bytes theirs, bool is_theirs_first, bool is_last) override {
    if (theirs.size() != op_.size_bytes) {
      return false;
    }
    std::uint8_t* into = is_last ? result_ : partial_;
    if (op_.size_bytes != 0) {
      reduce_two(into, is_theirs_first ? theirs.data() : own_, is_theirs_first ? own_ : theirs.data(), count_of(op_),
                 op_.dtype, combining_op(op_.op));
    }
    own_ = into;
    return true;
  }
  bool accept(Bytes result) override {
    if (result.size() != op_.size_bytes) {
      return false;
    }
    std::copy(result.begin(), result.end(), result_);
    return true;
  }

 private:
  const QuickOp& op_;
  const std::uint8_t* own_;
  std::uint8_t* partial_;
  std::uint8_t* result_;
};

// RootData is the data of a broadcast, which only some nodes have, and of a barrier, which is empty.
class RootData final : public RoundData {
 public:
  RootData(std::size_t size_bytes, const std::uint8_t* input)
      : size_bytes_(size_bytes), own_(input, input == nullptr ? 0 : size_bytes) {}
  [[nodiscard]] std::size_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] Bytes own() const override { return own_; }
  bool take(Bytes theirs, bool /*is_theirs_first*/, bool is_last) override {
    own_ = theirs.empty() ? own_ : theirs;
    return (own_.empty() && !is_last) || own_.size() == size_bytes_;
  }
  bool accept(Bytes result) override { return take(result, false, true); }

 private:
  std::size_t size_bytes_;
  Bytes own_;
};

}  // namespace

HostQuickPath::HostQuickPath(Place place, const Tuning& tuning, QuickCalls& calls)
    : process_set_(place.process_set),
      shm_(std::move(place.shm)),
      rounds_(std::move(place.rounds)),
      rank_(place.map.rank),
      ranks_(place.map.size),
      first_rank_(place.map.rank - place.map.local_rank),
      bytes_(limit_of(place.map, tuning)),
      calls_(calls) {
  HVD_CHECK(place.map.is_leader() == (rounds_ != nullptr));
  if (shm_ != nullptr) {
    local_.emplace(shm_->rounds(), shm_->local_size(), shm_->local_rank());
    operands_.resize(static_cast<std::size_t>(shm_->local_size()));
  }
  if (rounds_ != nullptr) {
    node_data_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes_);
    partial_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes_);
  }
}

bool HostQuickPath::takes(OpKind /*kind*/, std::size_t size_bytes) const {
  return size_bytes <= bytes_;
}

Result<void> HostQuickPath::answer(std::uint64_t round) {
  return rounds_ == nullptr ? Result<void>() : rounds_->answer(round, number_.load());
}

void HostQuickPath::retire() {
  is_retired_.store(true);
  if (rounds_ != nullptr) {
    rounds_->retire();
  }
}

Result<bool> HostQuickPath::try_run(const QuickOp& op) {
  HVD_CHECK(op.size_bytes <= bytes_ && op.name.size() <= kMaxNameBytes && op.shape.size() <= kMaxDims);
  const std::unique_lock lock(mu_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return false;
  }
  const std::uint64_t number = number_.load();
  if (!pace_.tries(number)) {
    return false;
  }
  HVD_TRY_ASSIGN(const bool is_done, shm_ == nullptr ? run(op, number) : run_with_node(op, number));
  pace_.note(is_done);
  if (is_done) {
    number_.fetch_add(1);
  }
  return is_done;
}

// For a rank that is alone on its node.
Result<bool> HostQuickPath::run(const QuickOp& op, std::uint64_t number) {
  HVD_TRY_ASSIGN(const bool may_post, rounds_->begin(number));
  if (!may_post) {
    return false;
  }
  const auto* input = static_cast<const std::uint8_t*>(op.input);
  auto* output = static_cast<std::uint8_t*>(op.output);
  if (op.kind == OpKind::kAllreduce && op.prescale != 1.0 && op.size_bytes != 0) {
    std::memcpy(node_data_.get(), input, op.size_bytes);
    scale_in_place(node_data_.get(), count_of(op), op.dtype, op.prescale);
    input = node_data_.get();
  }
  const bool brings_data = op.kind != OpKind::kBroadcast || op.root_index == rank_;
  return run_between_hosts(op, {brings_data ? input : nullptr, output});
}

// Meets the leaders of the other nodes, after rounds_->begin(). The result is complete when it returns true.
Result<bool> HostQuickPath::run_between_hosts(const QuickOp& op, const Own& own) {
  std::array<std::uint8_t, kMaxQuickHead> head;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  write_quick_head(head.data(), op, 0);
  const Bytes whole_head(head.data(), quick_head_bytes(op));
  Waits waits(process_set_, op, calls_);
  if (op.kind == OpKind::kAllreduce) {
    SumData data(op, own.input, partial_.get(), own.result);
    HVD_TRY_ASSIGN(const bool is_done, rounds_->run(whole_head, data, waits));
    if (is_done) {
      scale_in_place(own.result, count_of(op), op.dtype, result_scale(op.op, op.postscale, ranks_));
    }
    return is_done;
  }
  RootData data(op.size_bytes, own.input);
  HVD_TRY_ASSIGN(const bool is_done, rounds_->run(whole_head, data, waits));
  if (is_done && op.size_bytes != 0 && data.own().data() != own.result) {
    std::memcpy(own.result, data.own().data(), op.size_bytes);
  }
  return is_done;
}

// The ranks of this node will not meet, so a leader that has come answers at once.
Result<bool> HostQuickPath::decline(std::uint64_t number) {
  if (rounds_ != nullptr) {
    HVD_TRY(rounds_->decline(number));
  }
  return false;
}

// Posts this rank's box. True: all ranks of the node have posted for the same operation.
bool HostQuickPath::meet(const QuickOp& op) {
  if (!spins_) {
    spins_ = shm_->spins();  // all ranks have reported their cores by now
  }
  if (!local_->post(*spins_, kMeetsFor)) {
    return false;
  }
  const std::uint8_t* own = local_->box(shm_->local_rank());
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    if (std::memcmp(local_->box(rank), own, quick_head_bytes(op)) != 0) {
      local_->pass();
      return false;
    }
  }
  return true;
}

// Meets the ranks of this node in the second round. True: all have posted, the leader too. False: the job is over, or
// the set is removed.
bool HostQuickPath::hear_leader() {
  struct {
    bool has_slept = false;
    std::optional<Deadline> patience{};
  } so_far;
  return local_->post_promised(*spins_, [this, &so_far] {  // no more than std::function keeps without allocating
    if (!std::exchange(so_far.has_slept, true)) {
      calls_.note_sleep();
    }
    if (!so_far.patience && (calls_.is_over() || is_retired_.load())) {
      so_far.patience = Deadline::after(kTimeAfterEnd);
    }
    return so_far.patience && so_far.patience->has_passed();
  });
}

Result<bool> HostQuickPath::run_with_node(const QuickOp& op, std::uint64_t number) {
  std::uint8_t* box = local_->open();
  if (box == nullptr) {
    return decline(number);
  }
  const std::size_t at = quick_data_at(op);
  const bool brings_data = op.kind == OpKind::kAllreduce || (op.kind == OpKind::kBroadcast && op.root_index == rank_);
  if (op.size_bytes != 0 && brings_data) {
    std::memcpy(box + at, op.input, op.size_bytes);
    if (op.kind == OpKind::kAllreduce) {
      scale_in_place(box + at, count_of(op), op.dtype, op.prescale);
    }
  }
  write_quick_head(box, op, 0);
  if (!meet(op)) {
    return decline(number);
  }
  // From here on this rank has promised to wait for its leader.
  std::uint8_t* next = local_->next_box();
  Result<bool> is_done = false;
  if (rounds_ != nullptr) {
    auto may_post = rounds_->begin(number);
    if (!may_post.ok() || !may_post.value()) {
      is_done = may_post;
    } else {
      Own own = own_of_node(op, at);
      own.result = next + kResultAt;
      is_done = run_between_hosts(op, own);
    }
    *next = is_done.ok() && is_done.value() ? 1 : 0;
  }
  local_->pass();
  if (local_->open() != next || !hear_leader()) {
    return is_done.ok() ? Result<bool>(false) : is_done;
  }
  const std::uint8_t* said = local_->box(0);
  const bool is_done_by_all = *said != 0;
  if (is_done_by_all && op.size_bytes != 0) {
    std::memcpy(op.output, said + kResultAt, op.size_bytes);
  }
  local_->pass();
  return is_done.ok() ? Result<bool>(is_done_by_all) : is_done;
}

HostQuickPath::Own HostQuickPath::own_of_node(const QuickOp& op, std::size_t at) {
  if (op.kind == OpKind::kAllreduce) {
    for (int rank = 0; rank < shm_->local_size(); ++rank) {
      operands_[static_cast<std::size_t>(rank)] = local_->box(rank) + at;
    }
    if (op.size_bytes != 0) {
      ReduceTurn turn;
      turn.operands = operands_;
      turn.result = node_data_.get();
      turn.size_bytes = op.size_bytes;
      reduce_turn(turn, op.dtype, combining_op(op.op));
    }
    return {node_data_.get()};
  }
  const int local_root = op.root_index - first_rank_;
  const bool is_here = op.kind == OpKind::kBroadcast && local_root >= 0 && local_root < shm_->local_size();
  return {is_here ? local_->box(local_root) + at : nullptr};
}

}  // namespace hvd
