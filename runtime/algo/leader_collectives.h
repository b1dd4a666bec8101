// LeaderCollectives are collectives among the leaders of the nodes, over their TCP connections. Large data goes along
// rings, where each leader sends to the next node and receives from the previous one at the same time. Small data,
// whose cost is latency, goes in few exchanges.
//
// All leaders call the same operations in the same order with the same sizes. An operation on empty data does nothing.
// The same holds for a single node, which does not call allreduce. Thread: one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/algo/ring_flow.h"
#include "runtime/algo/schedule.h"
#include "runtime/base/interrupt.h"
#include "runtime/core/dtype.h"
#include "runtime/core/tuning.h"
#include "runtime/link/stream_io.h"

namespace hvd {

class LeaderCollectives {
 public:
  // peers[node] is the connection to the leader of each node; this node's entry is not used.
  LeaderCollectives(std::vector<StreamPeer> peers, int node_index, Looks looks, const Tuning& tuning = {});

  // Reduces over all leaders; blocks[node] of `data` is complete on that node's leader, and its other blocks hold
  // partial results. Every block is reduced along the ring, in the same order on every run.
  Result<void> reduce_scatter(void* data, std::span<const Range> blocks, Dtype dtype, ReduceOp op,
                              Interrupt& interrupt);
  // Reduces all pieces as one array, to their outputs, scaled. The order is the same on every run: along the ring, or
  // in pairs for small data.
  Result<void> allreduce(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scale after, Interrupt& interrupt);
  // Broadcasts along a chain from the root: every leader passes on what it has while it receives the rest.
  Result<void> broadcast(void* data, std::size_t size_bytes, int root_node, Interrupt& interrupt);
  // Gathers: each leader has blocks[node] of `data` already; afterwards all have all blocks.
  Result<void> allgather(void* data, std::span<const Range> blocks, Interrupt& interrupt);
  // Sends to one node's leader and receives from another's, which do the same.
  Result<void> exchange(int to_node, Bytes out, int from_node, MutableBytes in, Interrupt& interrupt);
  Result<void> barrier(Interrupt& interrupt);

 private:
  Result<void> run_ring(std::span<const Piece> pieces, std::span<const Range> blocks, RingFlow::Half half,
                        RingFlow::Sum sum, Interrupt& interrupt);
  Result<void> allreduce_in_pairs(std::span<const Piece> pieces, std::size_t size_bytes, Dtype dtype, ReduceOp op,
                                  Scale after, Interrupt& interrupt);
  Result<void> run_pairs(std::uint8_t* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  [[nodiscard]] int count() const { return static_cast<int>(peers_.size()); }
  [[nodiscard]] const StreamPeer& peer(int node) const { return peers_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const StreamPeer& next() const { return peer(ring_next(self_, count())); }
  [[nodiscard]] const StreamPeer& previous() const { return peer(ring_previous(self_, count())); }

  // constant after construction
  std::vector<StreamPeer> peers_;
  int self_;
  std::size_t piece_bytes_;
  std::size_t pairs_bytes_;
  // one thread at a time
  Looks looks_;
  Looks no_looks_{0};
  std::unique_ptr<std::uint8_t[]> staging_;  // received data that is not reduced yet
  std::unique_ptr<std::uint8_t[]> packed_;   // data that goes in pairs
  PieceMap map_;
  std::vector<Range> blocks_;  // of allreduce()
};

}  // namespace hvd
