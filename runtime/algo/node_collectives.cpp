#include "runtime/algo/node_collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/algo/share_blocks.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr std::size_t kElementBytes = 8;  // of the largest type

// A rank reduces at most a quarter of chunk_bytes at a time. Measured with two ranks and 1 to 16 MiB: its working set
// (its own and the other's data, published and reduced) then stays in its second-level cache of 2 MiB.
constexpr std::size_t kMostSharesOfChunk = 4;

// The most of a rank's own share in one turn. Smaller turns cost time to find the pieces again: with 8 KiB, 8 % of the
// time of 4 MiB.
constexpr std::size_t kTurnBytes = 32U << 10U;

// Returns how much of a rank's own share it reduces in one turn, at most `most`. Its own share takes as many turns as
// the shares of the others, each of which ends a turn. Otherwise a rank would have only copies left at the end, and
// wait for their cache lines.
std::size_t turn_bytes(std::size_t chunk_bytes, int ranks, std::size_t most) {
  const std::size_t share = share_of(chunk_bytes, ranks, 0).size();
  const auto others = static_cast<std::size_t>(std::max(1, ranks - 1));
  const std::size_t turns_of_share = (share + most * others - 1) / (most * others);
  const std::size_t turns = std::max<std::size_t>(1, turns_of_share * others);
  return ((share + turns - 1) / turns + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

NodeCollectives::NodeCollectives(ShmSegment* shm, const Tuning& tuning) : shm_(shm) {
  if (shm_ != nullptr) {
    const std::size_t fits = shm_->slot_bytes() / kBuffers / kCacheLineBytes * kCacheLineBytes;
    chunk_bytes_ = std::min(fits, tuning.chunk_bytes);
    const std::size_t shares = std::min<std::size_t>(kMostSharesOfChunk, static_cast<std::size_t>(shm_->local_size()));
    reduced_bytes_ =
        std::max(kCacheLineBytes, chunk_bytes_ * shares / kMostSharesOfChunk / kCacheLineBytes * kCacheLineBytes);
    small_bytes_ = std::min(
        {chunk_bytes_, tuning.small_bytes, tuning.small_read_bytes / static_cast<std::size_t>(shm_->local_size())});
    const std::size_t lane = chunk_bytes_ / static_cast<std::size_t>(shm_->local_size());
    // Two ranks never write to the same cache line, unless there are more ranks than lines.
    lane_bytes_ =
        lane / kCacheLineBytes > 0 ? lane / kCacheLineBytes * kCacheLineBytes : lane / kElementBytes * kElementBytes;
    HVD_CHECK(lane_bytes_ > 0);
    operands_.resize(static_cast<std::size_t>(shm_->local_size()));
  }
}

std::uint8_t* NodeCollectives::buffer(int local_rank, std::size_t chunk) const {
  return shm_->slot(local_rank) + buffer_at(chunk);
}

std::uint8_t* NodeCollectives::lane(int from, std::size_t chunk, int to) const {
  return buffer(from, chunk) + static_cast<std::size_t>(to) * lane_bytes_;
}

Result<void> NodeCollectives::run_pipeline(std::size_t chunk_count, std::size_t stage_count, const Stage& stage,
                                           Interrupt& interrupt) {
  const auto run_stages = [&](std::size_t phase) {
    for (std::size_t s = 0; s < stage_count && s <= phase; ++s) {
      if (phase - s < chunk_count) {
        stage(s, phase - s);
      }
    }
  };
  return run_phases(chunk_count, stage_count, std::ref(run_stages), interrupt);
}

Result<void> NodeCollectives::run_phases(std::size_t chunk_count, std::size_t stage_count, const Phase& phase,
                                         Interrupt& interrupt) {
  if (chunk_count == 0) {
    return {};
  }
  const std::size_t phase_count = chunk_count + stage_count - 1;
  for (std::size_t number = 0; number < phase_count; ++number) {
    phase(number);
    if (number + 1 < phase_count) {
      HVD_TRY(shm_->barrier(interrupt));
    }
  }
  first_chunk_ += chunk_count;
  return {};
}

Result<void> NodeCollectives::reduce_scatter(const void* input, std::span<const Range> pieces, void* out, Dtype dtype,
                                             ReduceOp op, Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const int self = shm_ == nullptr ? 0 : shm_->local_rank();
  const Range own = pieces[static_cast<std::size_t>(self)];
  if (shm_ == nullptr) {
    copy_bytes(bytes, in + own.begin, own.size());
    return {};
  }
  // A chunk has a lane for each rank's piece, so that all ranks have something to reduce in every phase.
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    if (s == 0) {
      for (int other = 0; other < shm_->local_size(); ++other) {
        const Range& piece = pieces[static_cast<std::size_t>(other)];
        const Range range = chunk_of(piece.size(), lane_bytes_, chunk);
        if (other != self) {
          copy_bytes(lane(self, chunk, other), in + piece.begin + range.begin, range.size());
        }
      }
      return;
    }
    const Range range = chunk_of(own.size(), lane_bytes_, chunk);
    for (int other = 0; other < shm_->local_size(); ++other) {
      const std::uint8_t* from = other == self ? in + own.begin + range.begin : lane(other, chunk, self);
      if (other == 0) {
        copy_bytes(bytes + range.begin, from, range.size());
      } else {
        reduce_into(bytes + range.begin, from, range.size() / size_of(dtype), dtype, op);
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, reduce out
  return run_pipeline(chunks_for(longest_of(pieces), lane_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::alltoall(const void* input, std::span<const Range> send, void* out,
                                       std::span<const Range> recv, std::size_t longest, Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const auto self = static_cast<std::size_t>(shm_ == nullptr ? 0 : shm_->local_rank());
  copy_bytes(bytes + recv[self].begin, in + send[self].begin, send[self].size());
  if (shm_ == nullptr) {
    return {};
  }
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    for (int other = 0; other < shm_->local_size(); ++other) {
      const Range& piece = (s == 0 ? send : recv)[static_cast<std::size_t>(other)];
      const Range range = chunk_of(piece.size(), lane_bytes_, chunk);
      if (other == shm_->local_rank()) {
        continue;
      }
      if (s == 0) {
        copy_bytes(lane(shm_->local_rank(), chunk, other), in + piece.begin + range.begin, range.size());
      } else {
        copy_bytes(bytes + piece.begin + range.begin, lane(other, chunk, shm_->local_rank()), range.size());
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(longest, lane_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::broadcast(void* data, std::size_t size_bytes, int local_root, Interrupt& interrupt) {
  if (shm_ == nullptr) {
    return {};
  }
  auto* bytes = static_cast<std::uint8_t*>(data);
  const bool is_root = shm_->local_rank() == local_root;
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    const Range range = chunk_of(size_bytes, chunk_bytes_, chunk);
    if (s == 0 && is_root) {
      copy_bytes(buffer(local_root, chunk), bytes + range.begin, range.size());
    } else if (s == 1 && !is_root) {
      copy_bytes(bytes + range.begin, buffer(local_root, chunk), range.size());
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(size_bytes, chunk_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::allgather(const void* input, std::span<const Range> pieces, void* out,
                                        Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const int self = shm_ == nullptr ? 0 : shm_->local_rank();
  const Range own = pieces[static_cast<std::size_t>(self)];
  if (in != bytes + own.begin) {
    copy_bytes(bytes + own.begin, in, own.size());
  }
  if (shm_ == nullptr) {
    return {};
  }
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    if (s == 0) {
      const Range range = chunk_of(own.size(), chunk_bytes_, chunk);
      copy_bytes(buffer(self, chunk), in + range.begin, range.size());
      return;
    }
    for (int other = 0; other < shm_->local_size(); ++other) {
      const Range& piece = pieces[static_cast<std::size_t>(other)];
      const Range range = chunk_of(piece.size(), chunk_bytes_, chunk);
      if (other != self) {
        copy_bytes(bytes + piece.begin + range.begin, buffer(other, chunk), range.size());
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(longest_of(pieces), chunk_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::barrier(Interrupt& interrupt) {
  return shm_ == nullptr ? Result<void>() : shm_->barrier(interrupt);
}

// Reductions among the ranks of a node. Each rank reduces a share of the elements, and publishes only what others
// reduce. Of S bytes and n ranks, each rank copies (n-1)/n S into its slot, and as much out of the others' slots. It
// reads its own share directly from the caller's memory. (This is the reduce-scatter and allgather of Rabenseifner,
// "Optimization of Collective Reduction Operations", ICCS 2004, with shared memory instead of messages.)

// The operands are in the order of local ranks, so that the result does not depend on which rank computes it.
template <typename Operand>
std::span<const std::uint8_t* const> NodeCollectives::operands_of(const Operand& operand) {
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    operands_[static_cast<std::size_t>(rank)] = operand(rank);
  }
  return operands_;
}

// There is one barrier; every rank that takes the result reads all slots.
Result<void> NodeCollectives::reduce_small(const Reduction& what, Interrupt& interrupt) {
  const std::size_t count = what.size_bytes / size_of(what.dtype);
  std::uint8_t* own = buffer(shm_->local_rank(), 0);
  PieceCursor(what.pieces).copy_inputs(own, what.size_bytes);
  scale_in_place(own, count, what.dtype, what.scales.before);
  HVD_TRY(shm_->barrier(interrupt));
  if (what.takes_result) {
    alignas(kCacheLineBytes) Block result;  // NOLINT: filled by the reduction
    ReduceTurn turn;
    turn.operands = operands_of([&](int rank) { return buffer(rank, 0); });
    turn.result = result.data();
    turn.size_bytes = what.size_bytes;
    turn.scale = what.scales.after;
    reduce_turn(turn, what.dtype, what.op);
    PieceCursor(what.pieces).copy_to_outputs(result.data(), what.size_bytes);
  }
  first_chunk_ += 1;
  return {};
}

// Walk is the positions of a reduction's three stages in the pieces.
struct NodeCollectives::Walk {
  explicit Walk(std::span<const Piece> pieces) : published(pieces), reduced(pieces), taken(pieces) {}

  PieceCursor published;
  PieceCursor reduced;
  PieceCursor taken;
};

// Returns the rank in whose slot the result of a rank's share is put: a place where the rank has just read what the
// slot's owner published. The owner later writes to lines that it last read itself. So a cache line moves from one core
// to another and back once, instead of twice.
int NodeCollectives::host_of(int rank) const {
  return rank == 0 && shm_->local_size() > 1 ? 1 : 0;
}

CopyRun NodeCollectives::published_run(const ShareBlocks& block, std::size_t buffer) const {
  return {shm_->slot(shm_->local_rank()) + buffer + block.begin(), block.input(), block.size()};
}

CopyRun NodeCollectives::taken_run(const ShareBlocks& block, std::size_t buffer) const {
  return {block.output(), shm_->slot(host_of(block.rank())) + buffer + block.begin(), block.size()};
}

// `scratch` is for inputs that are scaled. They are not scaled in the result's place, because another rank's input is
// there.
void NodeCollectives::reduce_block(const Reduction& what, const ShareBlocks& block, std::size_t buffer, Block& scratch,
                                   ReduceTurn& turn) {
  const int self = shm_->local_rank();
  const std::size_t in_slot = buffer + block.begin();
  const std::uint8_t* own = block.input();
  if (!what.scales.before.is_one()) {
    copy_bytes(scratch.data(), own, block.size());
    scale_in_place(scratch.data(), block.size() / size_of(what.dtype), what.dtype, what.scales.before);
    own = scratch.data();
  }
  turn.operands = operands_of([&](int rank) { return rank == self ? own : shm_->slot(rank) + in_slot; });
  turn.result = shm_->slot(host_of(self)) + in_slot;
  turn.output = what.takes_result ? block.output() : nullptr;
  turn.size_bytes = block.size();
  turn.scale = what.scales.after;
}

// Does one block of each stage in turn.
void NodeCollectives::reduce_phase(const Reduction& what, std::size_t phase, Walk& walk) {
  const int ranks = shm_->local_size();
  alignas(kCacheLineBytes) Block scratch;  // NOLINT: filled where it is used
  const std::size_t most = what.scales.before.is_one() ? kTurnBytes : scratch.size();
  const std::size_t block_bytes = turn_bytes(what.chunk_bytes, ranks, most);
  const auto blocks = [&](std::size_t stage, PieceCursor& cursor, ShareBlocks::Of of) {
    const Range chunk = phase < stage ? Range{} : chunk_of(what.size_bytes, what.chunk_bytes, phase - stage);
    const std::size_t shares = of == ShareBlocks::Of::kSelf ? 1 : static_cast<std::size_t>(ranks) - 1;
    return ShareBlocks(cursor, chunk, ranks, shm_->local_rank(), of, block_bytes * shares);
  };
  ShareBlocks published = blocks(0, walk.published, ShareBlocks::Of::kOthers);
  ShareBlocks reduced = blocks(1, walk.reduced, ShareBlocks::Of::kSelf);
  ShareBlocks taken = blocks(2, walk.taken, ShareBlocks::Of::kOthers);
  for (bool is_over = false; !is_over;) {
    ReduceTurn turn;
    is_over = true;
    if (published.next()) {
      turn.published = published_run(published, buffer_at(phase));
      is_over = false;
    }
    if (reduced.next()) {
      reduce_block(what, reduced, buffer_at(phase - 1), scratch, turn);
      is_over = false;
    }
    if (what.takes_result && taken.next()) {
      turn.taken = taken_run(taken, buffer_at(phase - 2));
      is_over = false;
    }
    reduce_turn(turn, what.dtype, what.op);
    scale_in_place(turn.published.to, turn.published.size_bytes / size_of(what.dtype), what.dtype, what.scales.before);
  }
}

Result<void> NodeCollectives::reduce(Reduction what, Interrupt& interrupt) {
  // Below this size, a second barrier costs more than computing everything on all ranks.
  if (what.size_bytes != 0 && what.size_bytes <= std::min(small_bytes_, kBlockBytes)) {
    return reduce_small(what, interrupt);
  }
  what.chunk_bytes = reduced_bytes_;
  Walk walk(what.pieces);
  static constexpr std::size_t kStages = 3;  // publish, reduce, take
  static_assert(kStages <= kBuffers);
  const auto phase = [&](std::size_t number) { reduce_phase(what, number, walk); };
  return run_phases(chunks_for(what.size_bytes, what.chunk_bytes), kStages, std::ref(phase), interrupt);
}

Result<void> NodeCollectives::reduce(const void* input, void* out, std::size_t count, Dtype dtype, ReduceOp op,
                                     ResultTo result_to, Interrupt& interrupt) {
  const std::size_t bytes = count * size_of(dtype);
  if (shm_ == nullptr) {
    if (input != out) {
      copy_bytes(static_cast<std::uint8_t*>(out), static_cast<const std::uint8_t*>(input), bytes);
    }
    return {};
  }
  const Piece piece{input, out, bytes};
  const bool takes_result = result_to == ResultTo::kAll || shm_->local_rank() == 0;
  return reduce(Reduction{std::span(&piece, 1), bytes, 0, dtype, op, {}, takes_result}, interrupt);
}

Result<void> NodeCollectives::reduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                            Interrupt& interrupt) {
  HVD_CHECK(shm_ != nullptr);
  return reduce(Reduction{pieces, bytes_of(pieces), 0, dtype, op, scales, true}, interrupt);
}

// Reduces one block of this rank's share, which is small enough to stay in the cache from the first read to the last
// write.
void NodeCollectives::reduce_shared_block(std::size_t offset, std::size_t size_bytes, Dtype dtype, ReduceOp op,
                                          Scales scales) {
  const int ranks = shm_->local_size();
  ReduceTurn turn;
  turn.operands = operands_of([&](int rank) {
    std::uint8_t* operand = shm_->arena(rank) + offset;
    scale_in_place(operand, size_bytes / size_of(dtype), dtype, scales.before);
    return operand;
  });
  turn.result = shm_->arena(0) + offset;
  turn.output = ranks > 1 ? shm_->arena(1) + offset : nullptr;
  turn.size_bytes = size_bytes;
  turn.scale = scales.after;
  reduce_turn(turn, dtype, op);
  for (int rank = 2; rank < ranks; ++rank) {
    copy_bytes(shm_->arena(rank) + offset, turn.result, size_bytes);
  }
}

Result<void> NodeCollectives::reduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op,
                                            Scales scales, Interrupt& interrupt) {
  HVD_CHECK(shm_ != nullptr);
  std::size_t total = 0;
  for (const SharedPiece& piece : pieces) {
    total += piece.size_bytes;
  }
  const Range share = split(total, static_cast<std::size_t>(shm_->local_size()),
                            static_cast<std::size_t>(shm_->local_rank()), kCacheLineBytes);
  std::size_t before = 0;  // bytes of the pieces before this one
  for (const SharedPiece& piece : pieces) {
    const std::size_t begin = std::max(share.begin, before);
    const std::size_t end = std::min(share.end, before + piece.size_bytes);
    for (std::size_t at = begin; at < end; at += kBlockBytes) {
      reduce_shared_block(piece.offset + at - before, std::min(kBlockBytes, end - at), dtype, op, scales);
    }
    before += piece.size_bytes;
  }
  return shm_->barrier(interrupt);
}

}  // namespace hvd
