// Executor carries one Response out on this rank's host memory through the Backend: it copies, scales, packs and
// reduces.
//
// Thread: engine only.
#pragma once

#include <span>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/controller/message.h"
#include "runtime/core/rank_map.h"
#include "runtime/execute/fusion_buffer.h"
#include "runtime/execute/submit_queue.h"
#include "runtime/observe/timeline.h"

namespace hvd {

class Executor {
 public:
  enum class OfNode : std::uint8_t { kCombined, kAveraged };

  // Makes the executor for the process set of these ranks (ascending, of the job); `map` is this rank's place in the
  // set.
  Executor(RankMap map, std::vector<int> ranks, Backend& backend)
      : map_(std::move(map)), ranks_(std::move(ranks)), backend_(backend) {}

  [[nodiscard]] const RankMap& map() const { return map_; }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  // Sets the timeline for its phases and the backend's stages; the timeline must outlive both.
  void trace_to(Timeline* timeline) {
    timeline_ = timeline;
    backend_.trace_to(timeline);
  }

  // Runs the response. `ops` are this rank's operations of response.names, in that order. On success their outputs are
  // complete; the caller finishes the operations. An error means that this rank could not take part, so the job cannot
  // go on. Adasum first combines the ranks of a node, or averages them.
  Result<void> run(const Response& response, std::span<PendingOp* const> ops, Interrupt& interrupt,
                   OfNode adasum_of_node = OfNode::kCombined);

 private:
  Result<void> allreduce(PendingOp& op, Interrupt& interrupt);
  Result<void> fused_allreduce(std::span<PendingOp* const> ops, Interrupt& interrupt);
  Result<void> allreduce_shared(std::span<PendingOp* const> ops, Interrupt& interrupt);
  Result<void> allreduce_pieces(std::span<PendingOp* const> ops, Interrupt& interrupt);
  Result<void> adasum(std::span<PendingOp* const> ops, OfNode of_node, Interrupt& interrupt);
  Result<void> reduce(void* data, std::size_t size_bytes, const Submission& like, Interrupt& interrupt);
  // These split tensors by rank along dimension 0.
  Result<void> allgather(const Response& response, std::span<PendingOp* const> ops, Interrupt& interrupt);
  Result<void> reducescatter(std::span<PendingOp* const> ops, Interrupt& interrupt);
  Result<void> alltoall(PendingOp& op, Interrupt& interrupt);
  Result<void> broadcast(PendingOp& op, Interrupt& interrupt);

  const RankMap map_;
  const std::vector<int> ranks_;
  Backend& backend_;
  FusionBuffer fusion_buffer_;
  Timeline* timeline_ = nullptr;  // null: phases are not recorded
  // of the running operation
  std::vector<Piece> pieces_;
  std::vector<SharedPiece> shared_pieces_;
};

// Returns the place of a broadcast's root among the ranks of the process set.
Result<int> root_index(std::span<const int> ranks, int root);

// Returns the scale of a reduction's result: postscale, and for an average also the division by the number of ranks. It
// multiplies instead if the result is the same, as for a power of two.
Scale result_scale(ReduceOp op, double postscale, int size);

}  // namespace hvd
