// Reductions among the ranks of a node. Each rank reduces a share of the elements, and gives the others only what is
// theirs to reduce: of S bytes and n ranks, (n-1)/n S go into a slot and as many come out of the others' slots. What a
// rank reduces itself it reads where the caller has it. (The reduce-scatter and allgather of Rabenseifner,
// "Optimization of Collective Reduction Operations", ICCS 2004, with shared memory instead of messages.)
#include <algorithm>
#include <array>

#include "runtime/algo/node_collectives.h"
#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

// What is reduced at a time: a block of the result and what it is made of stay in a core's first cache.
constexpr std::size_t kBlockBytes = 8U << 10U;
using Block = std::array<std::uint8_t, kBlockBytes>;

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

// Shares end at cache lines, so that no two ranks write one.
Range NodeCollectives::share_of(std::size_t chunk_bytes, int local_rank) const {
  return split(chunk_bytes, static_cast<std::size_t>(shm_->local_size()), static_cast<std::size_t>(local_rank),
               kCacheLineBytes);
}

void NodeCollectives::publish_shares(const Reduction& what, std::size_t chunk, std::size_t chunk_bytes,
                                     PieceCursor& in) {
  std::uint8_t* own = buffer(shm_->local_rank(), chunk);
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    const Range share = share_of(chunk_bytes, rank);
    if (rank == shm_->local_rank()) {
      in.skip(share.size());
    } else {
      in.copy_inputs(own + share.begin, share.size());
      scale_in_place(own + share.begin, share.size() / size_of(what.dtype), what.dtype, what.scales.before);
    }
  }
}

// The result goes into this rank's own slot, where its share is free, and from there to the caller.
void NodeCollectives::reduce_share(const Reduction& what, std::size_t chunk, std::size_t chunk_bytes, PieceCursor& in,
                                   PieceCursor& out) {
  const int self = shm_->local_rank();
  const Range share = share_of(chunk_bytes, self);
  alignas(kCacheLineBytes) Block scratch;  // NOLINT: filled where it is used
  in.skip(share.begin);
  out.skip(share.begin);
  for (std::size_t at = share.begin; at < share.end; at += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, share.end - at);
    const std::size_t count = bytes / size_of(what.dtype);
    std::uint8_t* result = buffer(self, chunk) + at;
    reduce_operands(result, scratch.data(), shm_->local_size(), bytes, what.dtype, what.op,
                    [&](int rank, std::uint8_t* room) -> const std::uint8_t* {
                      if (rank != self) {
                        return buffer(rank, chunk) + at;
                      }
                      if (what.scales.before == 1.0) {
                        return in.inputs(room, bytes);
                      }
                      in.copy_inputs(room, bytes);
                      scale_in_place(room, count, what.dtype, what.scales.before);
                      return room;
                    });
    scale_in_place(result, count, what.dtype, what.scales.after);
    if (what.takes_result) {
      out.copy_to_outputs(result, bytes);
    }
  }
  in.skip(chunk_bytes - share.end);
  out.skip(chunk_bytes - (what.takes_result ? share.end : share.begin));
}

void NodeCollectives::take_shares(std::size_t chunk, std::size_t chunk_bytes, PieceCursor& out) {
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    const Range share = share_of(chunk_bytes, rank);
    if (rank == shm_->local_rank()) {
      out.skip(share.size());
    } else {
      out.copy_to_outputs(buffer(rank, chunk) + share.begin, share.size());
    }
  }
}

Result<void> NodeCollectives::reduce(const Reduction& what, Interrupt& interrupt) {
  const std::size_t bytes = what.size_bytes;
  // Below this a second barrier costs more than what all ranks then compute alike.
  if (bytes != 0 && bytes <= std::min(small_bytes_, kBlockBytes)) {
    return reduce_small(what, interrupt);
  }
  PieceCursor published(what.pieces);
  PieceCursor reduced(what.pieces);
  PieceCursor reduced_out(what.pieces);
  PieceCursor taken(what.pieces);
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    const std::size_t chunk_bytes = chunk_of(bytes, chunk_bytes_, chunk).size();
    if (s == 0) {
      publish_shares(what, chunk, chunk_bytes, published);
    } else if (s == 1) {
      reduce_share(what, chunk, chunk_bytes, reduced, reduced_out);
    } else if (what.takes_result) {
      take_shares(chunk, chunk_bytes, taken);
    }
  };
  static constexpr std::size_t kStages = 3;  // publish, reduce, take
  static_assert(kStages <= kBuffers);
  return run_pipeline(chunks_for(bytes, chunk_bytes_), kStages, std::ref(stage), interrupt);
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
  return reduce(Reduction{std::span(&piece, 1), bytes, dtype, op, {}, takes_result}, interrupt);
}

Result<void> NodeCollectives::reduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                            Interrupt& interrupt) {
  HVD_CHECK(shm_ != nullptr);
  return reduce(Reduction{pieces, bytes_of(pieces), dtype, op, scales, true}, interrupt);
}

// One block of this rank's share: small enough to stay in the cache from the first reading to the last writing.
void NodeCollectives::reduce_block(std::size_t offset, std::size_t size_bytes, Dtype dtype, ReduceOp op,
                                   Scales scales) const {
  alignas(kCacheLineBytes) Block result;   // NOLINT: filled by the reduction
  alignas(kCacheLineBytes) Block scratch;  // NOLINT: filled where it is used
  const std::size_t count = size_bytes / size_of(dtype);
  reduce_operands(result.data(), scratch.data(), shm_->local_size(), size_bytes, dtype, op,
                  [&](int rank, std::uint8_t* room) -> const std::uint8_t* {
                    const std::uint8_t* from = shm_->arena(rank) + offset;
                    if (scales.before == 1.0) {
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
      reduce_block(piece.offset + at - before, std::min(kBlockBytes, end - at), dtype, op, scales);
    }
    before += piece.size_bytes;
  }
  return shm_->barrier(interrupt);
}

}  // namespace hvd
