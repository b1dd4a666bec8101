// CpuBackend implements whole collectives on CPUs hierarchically: within a node through shared memory, between nodes
// over TCP among the nodes' leaders. So only one copy of the data per node is sent over the network (for an alltoall,
// every byte once).
//
// It does not own the mesh, which must outlive it. Thread: engine only.
#pragma once

#include <span>
#include <vector>

#include "runtime/algo/leader_collectives.h"
#include "runtime/algo/node_collectives.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/leader_wire.h"
#include "runtime/backend/staging.h"
#include "runtime/link/mesh.h"

namespace hvd {

class AlltoallLayout;

class CpuBackend final : public Backend {
 public:
  // `tuning` must be the same on all ranks of the mesh.
  explicit CpuBackend(Mesh& mesh, const Tuning& tuning = {});

  void trace_to(StageSink* sink) override;
  Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) override;
  [[nodiscard]] bool takes_pieces() const override { return map_.size > 1; }
  [[nodiscard]] bool takes_shared() const override { return map_.node_count == 1 && map_.size > 1; }
  Result<void> allreduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                Interrupt& interrupt) override;
  Result<void> allreduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                Interrupt& interrupt) override;
  Result<void> adasum(std::span<const MutableBytes> tensors, Dtype dtype, std::span<const int> averaged,
                      Interrupt& interrupt) override;
  Result<void> broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt) override;
  Result<void> allgather(const void* input, std::span<const std::size_t> sizes, void* out,
                         Interrupt& interrupt) override;
  Result<void> reducescatter(const void* input, std::span<const std::size_t> sizes, void* out, Dtype dtype, ReduceOp op,
                             Interrupt& interrupt) override;
  Result<void> alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                        Interrupt& interrupt) override;
  Result<void> barrier(Interrupt& interrupt) override;

 private:
  // The ranges of all ranks and nodes, one after the other in rank order.
  struct Parts {
    std::vector<Range> of_rank;
    std::vector<Range> of_node;
    std::span<const Range> of_local_ranks;  // the ranges of this node's ranks
  };
  [[nodiscard]] Parts parts_of(std::span<const std::size_t> sizes) const;
  [[nodiscard]] Range ranks_of_node(int node) const;
  Result<void> exchange_within_node(const void* input, const AlltoallLayout& layout, void* out, Interrupt& interrupt);
  Result<void> exchange_with_nodes(const void* input, const AlltoallLayout& layout, void* out, int distance,
                                   Interrupt& interrupt);
  // The parts of an allreduce.
  std::span<const Piece> scaled(std::span<const Piece> pieces, Dtype dtype, Scale scale);
  Result<void> run_segments(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                            Interrupt& interrupt);
  // Collect to, and scatter from, the leader of this node: pieces[i] of the leader's memory belongs to local rank i.
  Result<void> collect(const void* data, std::span<const Range> pieces, void* to, Interrupt& interrupt);
  Result<void> scatter(const void* data, std::span<const Range> pieces, void* out, Interrupt& interrupt);

  // constant after construction
  RankMap map_;
  std::size_t segment_bytes_;
  // engine only
  NodeCollectives node_;
  LeaderCollectives leaders_;
  LeaderWire wire_{leaders_};
  StageSink* sink_ = nullptr;  // null on a single node too, which has no stages
  std::vector<Piece> scaled_;  // pieces whose outputs are their inputs, scaled
  Staging staging_;            // packed data; on leaders their node's data for others; Adasum's scratch memory
};

}  // namespace hvd
