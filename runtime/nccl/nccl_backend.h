// NcclBackend implements whole collectives over GPU memory by NCCL. Each call returns when its work is launched; the
// work is done in the order of the stream. All ranks call the same operations in the same order, as for Backend.
//
// Sizes are in bytes; parts lie one after the other in rank order. Thread: engine only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/dtype.h"
#include "runtime/nccl/nccl_comm.h"

namespace hvd {

class NcclBackend {
 public:
  NcclBackend(std::shared_ptr<NcclComm> comm, StreamHandle stream) : comm_(std::move(comm)), stream_(stream) {}

  // Whether NCCL can reduce numbers of this type; others can be moved, but not reduced.
  [[nodiscard]] static bool reduces(Dtype dtype);

  // `input` may be `out`. The operator is kSum, kMin, kMax or kProduct, here and below.
  Result<void> allreduce(const void* input, void* out, std::size_t count, Dtype dtype, ReduceOp op,
                         Interrupt& interrupt);
  Result<void> broadcast(const void* input, void* out, std::size_t size_bytes, int root, Interrupt& interrupt);

  // Several tensors of one kind are launched as one.
  struct Gather {
    const void* input = nullptr;
    std::vector<std::size_t> sizes;  // [rank]
    void* out = nullptr;
  };
  Result<void> allgather(std::span<const Gather> tensors, Interrupt& interrupt);
  struct Scatter {
    const void* input = nullptr;
    std::vector<std::size_t> sizes;  // [rank], of whole elements
    void* out = nullptr;
  };
  Result<void> reducescatter(std::span<const Scatter> tensors, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // sizes[from * ranks + to], as in Backend::alltoall.
  Result<void> alltoall(const void* input, std::span<const std::size_t> sizes, void* out, Interrupt& interrupt);

  [[nodiscard]] const std::shared_ptr<NcclComm>& comm() const { return comm_; }

 private:
  Result<void> gather(const NcclFunctions& calls, NcclHandle comm, const Gather& tensor) const;
  Result<void> scatter(const NcclFunctions& calls, NcclHandle comm, const Scatter& tensor, Dtype dtype,
                       ReduceOp op) const;
  Result<void> send(const NcclFunctions& calls, NcclHandle comm, const void* data, std::size_t bytes, int to) const;
  Result<void> receive(const NcclFunctions& calls, NcclHandle comm, void* data, std::size_t bytes, int from) const;

  const std::shared_ptr<NcclComm> comm_;
  const StreamHandle stream_;
};

}  // namespace hvd
