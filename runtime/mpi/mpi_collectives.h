// MpiCollectives: our collectives over MPI's messages between two ranks. Not MPI's own collectives, because those
// cannot be left when a rank dies, know neither bfloat16 nor our rounding, and promise no order of reduction.
//
// All ranks of `ranks` call the same in the same order. Empty data is no operation. Thread: as MpiComm.
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
  // `ranks`: who takes part, as numbers of `comm`, this rank among them; below they are called by their place in it.
  // `tag`: of all messages; no two sets of ranks that overlap have the same.
  MpiCollectives(MpiComm& comm, std::vector<int> ranks, int tag);

  [[nodiscard]] int self() const { return self_; }
  [[nodiscard]] int count() const { return static_cast<int>(ranks_.size()); }

  Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // parts[i]: what of `data` the i-th is to have, reduced over all; its other parts are left half done.
  Result<void> reduce_scatter(void* data, std::span<const Range> parts, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // parts[i]: what the i-th has of `data` already; afterwards all have all.
  Result<void> allgather(void* data, std::span<const Range> parts, Interrupt& interrupt);
  Result<void> broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt);
  // A piece for each other, and one from each.
  struct Exchange {
    int to = 0;
    const void* out = nullptr;
    std::size_t out_bytes = 0;
    int from = 0;
    void* in = nullptr;
    std::size_t in_bytes = 0;
  };
  // Some of them at a time, in this order. Both ends have the same order.
  Result<void> exchange(std::span<const Exchange> all, Interrupt& interrupt);
  Result<void> barrier(Interrupt& interrupt);

 private:
  Result<void> reduce_small(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  Result<void> fold(int partner, void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt);
  // The parts of the ring's walk, numbered as if this rank were `index` (see algo/schedule.h).
  Result<void> walk(void* data, std::span<const Range> parts, int index, Dtype dtype, ReduceOp op,
                    Interrupt& interrupt);
  // Sends to the next in the ring while the previous one's part is reduced into `into`.
  Result<void> pass_on(const std::uint8_t* out, std::size_t out_bytes, std::uint8_t* into, std::size_t in_bytes,
                       Dtype dtype, ReduceOp op, Interrupt& interrupt);
  [[nodiscard]] int rank_of(int place) const { return ranks_[static_cast<std::size_t>(place)]; }
  // Messages of at most `unit` bytes, all started; into started_.
  Result<void> start_send(const void* data, std::size_t bytes, int to, std::size_t unit);
  Result<void> start_receive(void* data, std::size_t bytes, int from, std::size_t unit);
  Result<void> finish(Interrupt& interrupt);
  Result<void> failed(const Error& why);

  MpiComm& comm_;
  const std::vector<int> ranks_;
  const int tag_;
  const int self_;
  Staging staging_;                  // what was received and is not reduced yet
  std::vector<MpiMessage> started_;  // of the operation that runs
};

}  // namespace hvd
