// CpuBackend: whole collectives on CPUs, hierarchically: within a node through shared memory, between nodes among the
// leaders over TCP, so that one copy of the data per node is on the wire.
//
// Does not own the mesh, which must outlive it. Thread: engine only.
#pragma once

#include <vector>

#include "runtime/algo/leader_collectives.h"
#include "runtime/algo/node_collectives.h"
#include "runtime/backend/backend.h"
#include "runtime/link/mesh.h"

namespace hvd {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(Mesh& mesh);

  Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) override;
  Result<void> broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt) override;
  Result<void> allgather(const void* input, std::span<const std::size_t> sizes, void* out,
                         Interrupt& interrupt) override;
  Result<void> barrier(Interrupt& interrupt) override;

 private:
  // constant after construction
  RankMap map_;
  // engine only
  NodeCollectives node_;
  LeaderCollectives leaders_;
};

}  // namespace hvd
