// NodeCollectives are collectives among the ranks of one node, through their shared memory.
//
// Data moves in chunks through a pipeline: in one phase every rank works on several chunks at different stages, and one
// barrier ends the phase. A slot holds kBuffers chunks in turn. Chunks are numbered consecutively through all
// operations, and chunk n uses buffer n % kBuffers. A rank that writes a buffer has therefore passed a barrier since
// the last read of the buffer's previous chunk (kBuffers chunks ago), whatever the operations were. So no operation
// needs a barrier at its end.
//
// All ranks of the node call the same operations in the same order with the same sizes. An operation on empty data does
// nothing.
// Thread: engine only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/algo/reduce_turn.h"
#include "runtime/algo/schedule.h"
#include "runtime/base/interrupt.h"
#include "runtime/core/dtype.h"
#include "runtime/core/piece.h"
#include "runtime/core/tuning.h"
#include "runtime/link/shm_segment.h"

namespace hvd {

class ShareBlocks;

class NodeCollectives {
 public:
  static constexpr std::size_t kBuffers = 3;

  // Without shared memory (null) the node has one rank, and operations have nothing to do.
  explicit NodeCollectives(ShmSegment* shm, const Tuning& tuning = {});

  enum class ResultTo { kAll, kLeader };

  // Reduces in local-rank order. `out` may be `input`; with kLeader, other ranks do not use it.
  Result<void> reduce(const void* input, void* out, std::size_t count, Dtype dtype, ReduceOp op, ResultTo result_to,
                      Interrupt& interrupt);
  // Does the same for pieces, with scales, and with the result on all ranks. The number of bytes is the same on every
  // rank, but pieces may be cut differently.
  Result<void> reduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                             Interrupt& interrupt);
  // Does the same in place for pieces in the arena of every rank, without copies. All ranks must have written theirs,
  // and must know that the others have.
  Result<void> reduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                             Interrupt& interrupt);
  // Reduces `input`; pieces[i] is the bytes of the reduction for local rank i. This rank's piece goes to `out`, which
  // does not overlap `input`. Each piece is reduced by its own rank, in local-rank order.
  Result<void> reduce_scatter(const void* input, std::span<const Range> pieces, void* out, Dtype dtype, ReduceOp op,
                              Interrupt& interrupt);
  // send[i] is the bytes of `input` for local rank i; recv[i] is the place in `out` for bytes from local rank i. `out`
  // does not overlap `input`. `longest` is the largest piece of any rank for any other, and is the same on all ranks.
  Result<void> alltoall(const void* input, std::span<const Range> send, void* out, std::span<const Range> recv,
                        std::size_t longest, Interrupt& interrupt);
  Result<void> broadcast(void* data, std::size_t size_bytes, int local_root, Interrupt& interrupt);
  // pieces[i] is the place in `out` of local rank i's piece; this rank's own piece is in `input`.
  Result<void> allgather(const void* input, std::span<const Range> pieces, void* out, Interrupt& interrupt);
  Result<void> barrier(Interrupt& interrupt);

 private:
  // The block that is reduced at a time if the result is read again soon: it and its operands stay in a core's
  // first-level cache.
  static constexpr std::size_t kBlockBytes = 8U << 10U;
  using Block = std::array<std::uint8_t, kBlockBytes>;

  // The arguments of a reduction.
  struct Reduction {
    std::span<const Piece> pieces;
    std::size_t size_bytes = 0;
    std::size_t chunk_bytes = 0;
    Dtype dtype = Dtype::kUint8;
    ReduceOp op = ReduceOp::kSum;
    Scales scales{};
    bool takes_result = true;
  };
  struct Walk;
  Result<void> reduce(Reduction what, Interrupt& interrupt);
  Result<void> reduce_small(const Reduction& what, Interrupt& interrupt);
  void reduce_shared_block(std::size_t offset, std::size_t size_bytes, Dtype dtype, ReduceOp op, Scales scales);
  // The stages of a reduction, on one block (of a chunk that is at `buffer` of each slot), and all stages in one phase.
  [[nodiscard]] CopyRun published_run(const ShareBlocks& block, std::size_t buffer) const;
  void reduce_block(const Reduction& what, const ShareBlocks& block, std::size_t buffer, Block& scratch,
                    ReduceTurn& turn);
  [[nodiscard]] CopyRun taken_run(const ShareBlocks& block, std::size_t buffer) const;
  void reduce_phase(const Reduction& what, std::size_t phase, Walk& walk);
  [[nodiscard]] int host_of(int rank) const;
  template <typename Operand>
  std::span<const std::uint8_t* const> operands_of(const Operand& operand);
  // Runs stages 0 ... stage_count-1 on chunks 0 ... chunk_count-1; chunk c is at stage s in phase c + s.
  using Stage = std::function<void(std::size_t stage, std::size_t chunk)>;
  Result<void> run_pipeline(std::size_t chunk_count, std::size_t stage_count, const Stage& stage, Interrupt& interrupt);
  // Does the same, but a phase runs its stages itself.
  using Phase = std::function<void(std::size_t phase)>;
  Result<void> run_phases(std::size_t chunk_count, std::size_t stage_count, const Phase& phase, Interrupt& interrupt);
  // buffer_at() is the offset of `chunk` of the current operation in each slot; buffer() is its memory in one slot.
  [[nodiscard]] std::size_t buffer_at(std::size_t chunk) const {
    return (first_chunk_ + chunk) % kBuffers * chunk_bytes_;
  }
  [[nodiscard]] std::uint8_t* buffer(int local_rank, std::size_t chunk) const;

  // A chunk is divided into one lane per rank: this is the part of `from`'s chunk for local rank `to`.
  [[nodiscard]] std::uint8_t* lane(int from, std::size_t chunk, int to) const;

  ShmSegment* shm_;
  std::size_t small_bytes_ = 0;  // up to this size a reduction has only one barrier
  std::size_t chunk_bytes_ = 0;
  std::size_t reduced_bytes_ = 0;  // the chunk size of a reduction
  std::size_t lane_bytes_ = 0;
  std::vector<const std::uint8_t*> operands_;  // of the block that is being reduced, by local rank
  std::uint64_t first_chunk_ = 0;              // number of the current operation's chunk 0
};

}  // namespace hvd
