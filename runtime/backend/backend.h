// Backend: whole collectives over flat memory. All ranks call the same operation in the same order (the engine's
// negotiation sees to that); each call blocks until done or until the Interrupt says that the job is over.
//
// Thread: engine only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/core/piece.h"

namespace hvd {

class Mesh;

class Backend {
 public:
  virtual ~Backend() = default;

  // data[count] in place; op is kSum, kMin, kMax or kProduct (averages and scales are the engine's). Bitwise the same
  // result on every rank, and from run to run for the same placement.
  virtual Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) = 0;
  // The same of pieces, with scales and from inputs to outputs, where the backend does that without packing them.
  [[nodiscard]] virtual bool takes_pieces() const { return false; }
  virtual Result<void> allreduce_pieces(std::span<const Piece> /*pieces*/, Dtype /*dtype*/, ReduceOp /*op*/,
                                        Scales /*scales*/, Interrupt& /*interrupt*/) {
    return Error(Code::kInternal, "this backend takes no pieces");
  }
  // The same in place, of pieces that lie in the memory of each rank that all share, at these offsets, where there is
  // such memory.
  [[nodiscard]] virtual bool takes_shared() const { return false; }
  virtual Result<void> allreduce_shared(std::span<const SharedPiece> /*pieces*/, Dtype /*dtype*/, ReduceOp /*op*/,
                                        Scales /*scales*/, Interrupt& /*interrupt*/) {
    return Error(Code::kInternal, "this backend takes nothing shared");
  }
  // Adasum (algo/adasum.h) of each tensor by itself, in place; dtype is a floating one. The tree is that of the ranks
  // of each node, and then that of the nodes (over MPI: of all ranks). Promises as for allreduce, and also whatever
  // tensors go together.
  virtual Result<void> adasum(std::span<const MutableBytes> tensors, Dtype dtype, Interrupt& interrupt) = 0;
  // data[size_bytes] of root goes to all, in place.
  virtual Result<void> broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt) = 0;
  // sizes[r] bytes of every rank r, concatenated in rank order into out; input holds this rank's sizes[rank] bytes.
  virtual Result<void> allgather(const void* input, std::span<const std::size_t> sizes, void* out,
                                 Interrupt& interrupt) = 0;
  // The reduction of what all ranks have in `input`, of which each rank gets its part into `out`: sizes[r] bytes go to
  // rank r, in rank order. `op` and the promise as for allreduce; `input` and `out` are apart.
  virtual Result<void> reducescatter(const void* input, std::span<const std::size_t> sizes, void* out, Dtype dtype,
                                     ReduceOp op, Interrupt& interrupt) = 0;
  // sizes[from * ranks + to] bytes of rank `from` go to rank `to`, the same table on every rank. `input` has this
  // rank's pieces in the order of their receivers, `out` gets those for this rank in the order of their senders; both
  // apart.
  virtual Result<void> alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                                Interrupt& interrupt) = 0;
  virtual Result<void> barrier(Interrupt& interrupt) = 0;

 protected:
  Backend() = default;
  Backend(const Backend&) = default;
  Backend& operator=(const Backend&) = default;
};

// BackendMaker: what the ranks of a job move their data by, where that is not CpuBackend. Thread: engine only.
class BackendMaker {
 public:
  virtual ~BackendMaker() = default;
  // For a process set (0: all) of these ranks of the job, ascending, which are more than one, this rank is among them,
  // and all have just met in `mesh`. The mesh outlives the backend.
  virtual Result<std::unique_ptr<Backend>> make(int process_set, const std::vector<int>& ranks, Mesh& mesh) = 0;
  // Whether small operations of a node's ranks may still go past the backend, through shared memory.
  [[nodiscard]] virtual bool keeps_quick_path() const = 0;

 protected:
  BackendMaker() = default;
  BackendMaker(const BackendMaker&) = default;
  BackendMaker& operator=(const BackendMaker&) = default;
};

}  // namespace hvd
