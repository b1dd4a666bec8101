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

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/algo/schedule.h"
#include "runtime/core/dtype.h"
#include "runtime/core/interrupt.h"
#include "runtime/link/shm_segment.h"

namespace hvd {

class NodeCollectives {
 public:
  static constexpr std::size_t kBuffers = 3;

  // Without shared memory (null) the node has one rank and everything is done already.
  explicit NodeCollectives(ShmSegment* shm);

  enum class ResultTo { kAll, kLeader };

  // In place; reduced in local-rank order. With kLeader the others' data is left as it was.
  Result<void> reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, ResultTo result_to,
                      Interrupt& interrupt);
  Result<void> broadcast(void* data, std::size_t size_bytes, int local_root, Interrupt& interrupt);
  // pieces[i]: where the piece of local rank i belongs in `out`; this rank's own is in `input`.
  Result<void> allgather(const void* input, std::span<const Range> pieces, void* out, Interrupt& interrupt);
  Result<void> barrier(Interrupt& interrupt);

 private:
  Result<void> reduce_small(void* data, std::size_t count, Dtype dtype, ReduceOp op, bool takes_result,
                            Interrupt& interrupt);
  // Runs stages 0 ... stage_count-1 on chunks 0 ... chunk_count-1, chunk c at stage s in phase c + s.
  using Stage = std::function<void(std::size_t stage, std::size_t chunk)>;
  Result<void> run_pipeline(std::size_t chunk_count, std::size_t stage_count, const Stage& stage, Interrupt& interrupt);
  // The memory of chunk `chunk` of the current operation in a rank's slot.
  [[nodiscard]] std::uint8_t* buffer(int local_rank, std::size_t chunk) const;

  ShmSegment* shm_;
  std::size_t chunk_bytes_ = 0;
  std::uint64_t first_chunk_ = 0;  // number of the current operation's chunk 0
};

}  // namespace hvd
