// MpiCollectives are our own collectives over MPI's point-to-point messages. They replace MPI's collectives, because
// those cannot be left when a rank dies, know neither bfloat16 nor our rounding, and promise no order of reduction.
//
// All ranks of `ranks` call the same operations in the same order. An operation on empty data does nothing. Thread: as
// MpiComm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algo/schedule.h"
#include "runtime/backend/staging.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/mpi/mpi_comm.h"

namespace hvd {

class MpiCollectives {
 public:
  // `ranks` are the participants as ranks of `comm`, including this one; below they are named by their index in this
  // list. `tag` marks all messages; two sets of ranks that overlap must not have the same.
  MpiCollectives(MpiComm& comm, std::vector<int> ranks, int tag);

  [[nodiscard]] int self() const { return self_; }
  [[nodiscard]] int count() const { return static_cast<int>(ranks_.size()); }

  Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // Reduces over all; parts[i] of `data` is complete on the i-th rank, and its other parts hold partial results.
  Result<void> reduce_scatter(void* data, std::span<const Range> parts, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // Gathers: the i-th rank has parts[i] of `data` already; afterwards all ranks have all parts.
  Result<void> allgather(void* data, std::span<const Range> parts, Interrupt& interrupt);
  Result<void> broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt);
  // Exchange is one piece to send and one to receive.
  struct Exchange {
    int to = 0;
    const void* out = nullptr;
    std::size_t out_bytes = 0;
    int from = 0;
    void* in = nullptr;
    std::size_t in_bytes = 0;
  };
  // Does some of them at a time, in this order. Both ends of each must have the same order.
  Result<void> exchange(std::span<const Exchange> all, Interrupt& interrupt);
  Result<void> barrier(Interrupt& interrupt);

 private:
  Result<void> reduce_small(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  Result<void> fold(int partner, void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // Does steps of the ring, numbered as if this rank were `index` (see algo/schedule.h).
  Result<void> walk(void* data, std::span<const Range> parts, int index, Dtype dtype, ReduceOp op,
                    Interrupt& interrupt);
  // Sends to the next rank of the ring while it reduces the previous rank's part into `into`.
  Result<void> pass_on(const std::uint8_t* out, std::size_t out_bytes, std::uint8_t* into, std::size_t in_bytes,
                       Dtype dtype, ReduceOp op, Interrupt& interrupt);
  [[nodiscard]] int rank_of(int place) const { return ranks_[static_cast<std::size_t>(place)]; }
  // These start messages of at most `unit` bytes each, and add them to started_.
  Result<void> start_send(const void* data, std::size_t bytes, int to, std::size_t unit);
  Result<void> start_receive(void* data, std::size_t bytes, int from, std::size_t unit);
  Result<void> finish(Interrupt& interrupt);
  Result<void> failed(const Error& why);

  MpiComm& comm_;
  const std::vector<int> ranks_;
  const int tag_;
  const int self_;
  Staging staging_;                  // received data that is not reduced yet
  std::vector<MpiMessage> started_;  // of the running operation
};

}  // namespace hvd
