// Reductions among the ranks of a node. Each rank reduces a share of the elements, and gives the others only what is
// theirs to reduce: of S bytes and n ranks, (n-1)/n S go into a slot and as many come out of the others' slots. What a
// rank reduces itself it reads where the caller has it. (The reduce-scatter and allgather of Rabenseifner,
// "Optimization of Collective Reduction Operations", ICCS 2004, with shared memory instead of messages.)
#include <algorithm>
#include <array>

#include "runtime/algo/node_collectives.h"
#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/algo/share_blocks.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

// What is reduced at a time: a block of the result and what it is made of stay in a core's first cache.
constexpr std::size_t kBlockBytes = 8U << 10U;
using Block = std::array<std::uint8_t, kBlockBytes>;

// Of each share, what is done in one stage before it is the next one's turn. Measured with 256 KiB to 4 MiB of float32
// on two cores: from 2 KiB up a processor does not see the next block's loads early enough to have them overlap. Where
// ranks take turns on a core there is little to overlap, and 8 KiB at a time are 4 % faster (four ranks on two cores).
constexpr std::size_t kTurnBytes = 1U << 10U;

// operand(rank, scratch) -> where the rank's elements lie; it may put them into `scratch`. In rank order, so that the
// result does not depend on who computes it.
template <typename Operand>
void reduce_operands(std::uint8_t* result, std::uint8_t* scratch, int ranks, std::size_t size_bytes, Dtype dtype,
                     ReduceOp op, const Operand& operand) {
  const std::size_t count = size_bytes / size_of(dtype);
  const std::uint8_t* first = operand(0, result);
  if (ranks == 1 && first != result) {
    copy_bytes(result, first, size_bytes);
  }
  for (int rank = 1; rank < ranks; ++rank) {
    reduce_two(result, rank == 1 ? first : result, operand(rank, scratch), count, dtype, op);
  }
}

std::size_t bytes_of(std::span<const Piece> pieces) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) {
    bytes += piece.size_bytes;
  }
  return bytes;
}

}  // namespace

// One barrier: every rank that takes the result reads all slots.
Result<void> NodeCollectives::reduce_small(const Reduction& what, Interrupt& interrupt) {
  const std::size_t count = what.size_bytes / size_of(what.dtype);
  std::uint8_t* own = buffer(shm_->local_rank(), 0);
  PieceCursor(what.pieces).copy_inputs(own, what.size_bytes);
  scale_in_place(own, count, what.dtype, what.scales.before);
  HVD_TRY(shm_->barrier(interrupt));
  if (what.takes_result) {
    alignas(kCacheLineBytes) Block result;  // NOLINT: filled by the reduction
    reduce_operands(result.data(), nullptr, shm_->local_size(), what.size_bytes, what.dtype, what.op,
                    [&](int rank, std::uint8_t*) { return buffer(rank, 0); });
    scale_in_place(result.data(), count, what.dtype, what.scales.after);
    PieceCursor(what.pieces).copy_to_outputs(result.data(), what.size_bytes);
  }
  first_chunk_ += 1;
  return {};
}

// The three stages of a reduction; each has a cursor of its own for what it reads and for what it writes.
struct NodeCollectives::Walk {
  explicit Walk(std::span<const Piece> pieces)
      : published(pieces), reduced(pieces), reduced_out(pieces), taken(pieces) {}

  PieceCursor published;
  PieceCursor reduced;
  PieceCursor reduced_out;
  PieceCursor taken;
};

// Whose slot the result of a rank's share lies in: one where the rank has just read what the owner published there. So
// the owner writes again what it last read itself, and a cache line goes from one core to another and back, instead
// of twice.
int NodeCollectives::host_of(int rank) const {
  return rank == 0 && shm_->local_size() > 1 ? 1 : 0;
}

void NodeCollectives::publish_block(const Reduction& what, std::size_t chunk, Range block, PieceCursor& in) {
  std::uint8_t* to = buffer(shm_->local_rank(), chunk) + block.begin;
  in.skip_to(chunk * what.chunk_bytes + block.begin);
  in.copy_inputs(to, block.size());
  if (!what.scales.before.is_one()) {
    scale_in_place(to, block.size() / size_of(what.dtype), what.dtype, what.scales.before);
  }
}

void NodeCollectives::reduce_block(const Reduction& what, std::size_t chunk, Range block, Walk& walk) {
  const int self = shm_->local_rank();
  const std::size_t count = block.size() / size_of(what.dtype);
  std::uint8_t* result = buffer(host_of(self), chunk) + block.begin;
  alignas(kCacheLineBytes) Block own;  // NOLINT: filled where it is used
  walk.reduced.skip_to(chunk * what.chunk_bytes + block.begin);
  // Not into `result`, which is what another rank has published.
  const auto own_inputs = [&]() -> const std::uint8_t* {
    if (what.scales.before.is_one()) {
      return walk.reduced.inputs(own.data(), block.size());
    }
    walk.reduced.copy_inputs(own.data(), block.size());
    scale_in_place(own.data(), count, what.dtype, what.scales.before);
    return own.data();
  };
  reduce_operands(result, nullptr, shm_->local_size(), block.size(), what.dtype, what.op,
                  [&](int rank, std::uint8_t*) -> const std::uint8_t* {
                    return rank == self ? own_inputs() : buffer(rank, chunk) + block.begin;
                  });
  if (!what.scales.after.is_one()) {
    scale_in_place(result, count, what.dtype, what.scales.after);
  }
  if (what.takes_result) {
    walk.reduced_out.skip_to(chunk * what.chunk_bytes + block.begin);
    walk.reduced_out.copy_to_outputs(result, block.size());
  }
}

void NodeCollectives::take_block(const Reduction& what, std::size_t chunk, int rank, Range block, PieceCursor& out) {
  out.skip_to(chunk * what.chunk_bytes + block.begin);
  out.copy_to_outputs(buffer(host_of(rank), chunk) + block.begin, block.size());
}

// A block of each stage in turn: while lines of what others have written are on their way from their caches, the
// processor copies what is in its own.
void NodeCollectives::reduce_phase(const Reduction& what, std::size_t phase, Walk& walk) {
  const int ranks = shm_->local_size();
  const auto blocks = [&](std::size_t stage, ShareBlocks::Of of) {
    const std::size_t bytes = phase < stage ? 0 : chunk_of(what.size_bytes, what.chunk_bytes, phase - stage).size();
    const std::size_t shares = of == ShareBlocks::Of::kSelf ? 1 : static_cast<std::size_t>(ranks) - 1;
    return ShareBlocks(bytes, ranks, shm_->local_rank(), of, what.turn_bytes * shares);
  };
  ShareBlocks published = blocks(0, ShareBlocks::Of::kOthers);
  ShareBlocks reduced = blocks(1, ShareBlocks::Of::kSelf);
  ShareBlocks taken = blocks(2, ShareBlocks::Of::kOthers);
  for (bool is_over = false; !is_over;) {
    is_over = true;
    if (published.next()) {
      publish_block(what, phase, published.block(), walk.published);
      is_over = false;
    }
    if (reduced.next()) {
      reduce_block(what, phase - 1, reduced.block(), walk);
      is_over = false;
    }
    if (what.takes_result && taken.next()) {
      take_block(what, phase - 2, taken.rank(), taken.block(), walk.taken);
      is_over = false;
    }
  }
}

Result<void> NodeCollectives::reduce(Reduction what, Interrupt& interrupt) {
  // Below this a second barrier costs more than what all ranks then compute alike.
  if (what.size_bytes != 0 && what.size_bytes <= std::min(small_bytes_, kBlockBytes)) {
    return reduce_small(what, interrupt);
  }
  what.chunk_bytes = reduced_bytes_;
  what.turn_bytes = shm_->spins() > 0 ? kTurnBytes : kBlockBytes;
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
  return reduce(Reduction{std::span(&piece, 1), bytes, 0, 0, dtype, op, {}, takes_result}, interrupt);
}

Result<void> NodeCollectives::reduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                            Interrupt& interrupt) {
  HVD_CHECK(shm_ != nullptr);
  return reduce(Reduction{pieces, bytes_of(pieces), 0, 0, dtype, op, scales, true}, interrupt);
}

// One block of this rank's share: small enough to stay in the cache from the first reading to the last writing.
void NodeCollectives::reduce_shared_block(std::size_t offset, std::size_t size_bytes, Dtype dtype, ReduceOp op,
                                          Scales scales) const {
  alignas(kCacheLineBytes) Block result;   // NOLINT: filled by the reduction
  alignas(kCacheLineBytes) Block scratch;  // NOLINT: filled where it is used
  const std::size_t count = size_bytes / size_of(dtype);
  reduce_operands(result.data(), scratch.data(), shm_->local_size(), size_bytes, dtype, op,
                  [&](int rank, std::uint8_t* room) -> const std::uint8_t* {
                    const std::uint8_t* from = shm_->arena(rank) + offset;
                    if (scales.before.is_one()) {
                      return from;
                    }
                    copy_bytes(room, from, size_bytes);
                    scale_in_place(room, count, dtype, scales.before);
                    return room;
                  });
  scale_in_place(result.data(), count, dtype, scales.after);
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    copy_bytes(shm_->arena(rank) + offset, result.data(), size_bytes);
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
