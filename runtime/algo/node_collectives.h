// NodeCollectives: collectives among the ranks of one node, through their shared memory.
//
// Data moves in chunks through a pipeline: in one phase every rank works on several chunks at different stages, and one
// barrier ends the phase. A slot holds kBuffers chunks in turn. Chunks are numbered on through all operations, and
// chunk n uses buffer n % kBuffers: a rank that writes a buffer has passed a barrier since the last read of the chunk
// that was in it (kBuffers chunks ago), whatever the operations were. So no operation needs a barrier at its end.
//
// All ranks of the node call the same operations in the same order with the same sizes. Empty data is no operation.
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

  // Without shared memory (null) the node has one rank and everything is done already.
  explicit NodeCollectives(ShmSegment* shm, const Tuning& tuning = {});

  enum class ResultTo { kAll, kLeader };

  // Reduced in local-rank order. `out` may be `input`; with kLeader it is not used on other ranks.
  Result<void> reduce(const void* input, void* out, std::size_t count, Dtype dtype, ReduceOp op, ResultTo result_to,
                      Interrupt& interrupt);
  // The same to all, of pieces (as many bytes on every rank, however they are cut) and with scales.
  Result<void> reduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                             Interrupt& interrupt);
  // The same of what lies in the arena of every rank, in place: nothing is copied elsewhere. All ranks must have
  // written theirs already, and know that the others have.
  Result<void> reduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                             Interrupt& interrupt);
  // pieces[i]: which bytes of the reduction are local rank i's; this rank's go to `out`, which is apart from `input`.
  // Reduced in local-rank order, each piece by its own rank.
  Result<void> reduce_scatter(const void* input, std::span<const Range> pieces, void* out, Dtype dtype, ReduceOp op,
                              Interrupt& interrupt);
  // send[i]: which bytes of `input` are for local rank i; recv[i]: where those of local rank i belong in `out`, which
  // is apart from `input`. longest: the largest piece of any rank for any other, the same number on all.
  Result<void> alltoall(const void* input, std::span<const Range> send, void* out, std::span<const Range> recv,
                        std::size_t longest, Interrupt& interrupt);
  Result<void> broadcast(void* data, std::size_t size_bytes, int local_root, Interrupt& interrupt);
  // pieces[i]: where the piece of local rank i belongs in `out`; this rank's own is in `input`.
  Result<void> allgather(const void* input, std::span<const Range> pieces, void* out, Interrupt& interrupt);
  Result<void> barrier(Interrupt& interrupt);

 private:
  // What is reduced at a time where it is read again: it and what it is made of stay in a core's first cache.
  static constexpr std::size_t kBlockBytes = 8U << 10U;
  using Block = std::array<std::uint8_t, kBlockBytes>;

  // What a reduction is of.
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
  // The stages of a reduction, on one block (of a chunk that lies at `buffer` of each slot), and all of them in one
  // phase.
  [[nodiscard]] CopyRun published_run(const ShareBlocks& block, std::size_t buffer) const;
  void reduce_block(const Reduction& what, const ShareBlocks& block, std::size_t buffer, Block& scratch,
                    ReduceTurn& turn);
  [[nodiscard]] CopyRun taken_run(const ShareBlocks& block, std::size_t buffer) const;
  void reduce_phase(const Reduction& what, std::size_t phase, Walk& walk);
  [[nodiscard]] int host_of(int rank) const;
  template <typename Operand>
  std::span<const std::uint8_t* const> operands_of(const Operand& operand);
  // Runs stages 0 ... stage_count-1 on chunks 0 ... chunk_count-1, chunk c at stage s in phase c + s.
  using Stage = std::function<void(std::size_t stage, std::size_t chunk)>;
  Result<void> run_pipeline(std::size_t chunk_count, std::size_t stage_count, const Stage& stage, Interrupt& interrupt);
  // The same where a phase runs its stages itself.
  using Phase = std::function<void(std::size_t phase)>;
  Result<void> run_phases(std::size_t chunk_count, std::size_t stage_count, const Phase& phase, Interrupt& interrupt);
  // Where chunk `chunk` of the current operation lies in each slot; and its memory in one.
  [[nodiscard]] std::size_t buffer_at(std::size_t chunk) const {
    return (first_chunk_ + chunk) % kBuffers * chunk_bytes_;
  }
  [[nodiscard]] std::uint8_t* buffer(int local_rank, std::size_t chunk) const;

  // A chunk in as many lanes as there are ranks: what of `from`'s chunk is for local rank `to`.
  [[nodiscard]] std::uint8_t* lane(int from, std::size_t chunk, int to) const;

  ShmSegment* shm_;
  std::size_t small_bytes_ = 0;  // reduced behind one barrier up to this
  std::size_t chunk_bytes_ = 0;
  std::size_t reduced_bytes_ = 0;  // the chunks of a reduction
  std::size_t lane_bytes_ = 0;
  std::vector<const std::uint8_t*> operands_;  // of the block that is reduced, by local rank
  std::uint64_t first_chunk_ = 0;              // number of the current operation's chunk 0
};

}  // namespace hvd
