// Backend is the interface to whole collectives over flat memory, so that the engine need not know what moves the data.
// All ranks call the same operation in the same order, which the engine's negotiation ensures. Each call blocks until
// it is done, or until the Interrupt reports that the job is over.
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
#include "runtime/core/stage_sink.h"

namespace hvd {

class Mesh;

class Backend {
 public:
  virtual ~Backend() = default;

  // Tells the sink (null: nobody) of the stages of what follows; the sink must outlive the backend. Called before the
  // first operation.
  virtual void trace_to(StageSink* /*sink*/) {}

  // Reduces data[count] in place; op is kSum, kMin, kMax or kProduct (the engine does averages and scales). The result
  // is bitwise the same on every rank, and from run to run for the same placement.
  virtual Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) = 0;
  // Does the same for pieces, with scales and from inputs to outputs, if the backend can do that without packing them.
  [[nodiscard]] virtual bool takes_pieces() const { return false; }
  virtual Result<void> allreduce_pieces(std::span<const Piece> /*pieces*/, Dtype /*dtype*/, ReduceOp /*op*/,
                                        Scales /*scales*/, Interrupt& /*interrupt*/) {
    return Error(Code::kInternal, "this backend takes no pieces");
  }
  // Does the same in place for pieces at these offsets of the memory that all ranks share, if there is such memory.
  [[nodiscard]] virtual bool takes_shared() const { return false; }
  virtual Result<void> allreduce_shared(std::span<const SharedPiece> /*pieces*/, Dtype /*dtype*/, ReduceOp /*op*/,
                                        Scales /*scales*/, Interrupt& /*interrupt*/) {
    return Error(Code::kInternal, "this backend takes nothing shared");
  }
  // Computes Adasum (algo/adasum.h) of each tensor separately, in place; dtype is a floating type. The tree combines
  // the ranks of each node first, and then the nodes (over MPI: all ranks). It makes the promises of allreduce, and the
  // result does not depend on which tensors are passed together. `averaged`: the node of each rank, whose ranks are
  // averaged instead of combined; empty: they are not.
  virtual Result<void> adasum(std::span<const MutableBytes> tensors, Dtype dtype, std::span<const int> averaged,
                              Interrupt& interrupt) = 0;
  // Copies data[size_bytes] of root to all ranks, in place.
  virtual Result<void> broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt) = 0;
  // Concatenates sizes[r] bytes of every rank r in rank order into out; input holds this rank's sizes[rank] bytes.
  virtual Result<void> allgather(const void* input, std::span<const std::size_t> sizes, void* out,
                                 Interrupt& interrupt) = 0;
  // Reduces the `input` of all ranks and gives each rank its part in `out`: sizes[r] bytes go to rank r, in rank order.
  // `op` and the promises are those of allreduce; `input` and `out` do not overlap.
  virtual Result<void> reducescatter(const void* input, std::span<const std::size_t> sizes, void* out, Dtype dtype,
                                     ReduceOp op, Interrupt& interrupt) = 0;
  // Sends sizes[from * ranks + to] bytes from rank `from` to rank `to`; the table is the same on every rank. `input`
  // holds this rank's pieces in the order of their receivers, and `out` receives pieces in the order of their senders.
  // The two do not overlap.
  virtual Result<void> alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                                Interrupt& interrupt) = 0;
  virtual Result<void> barrier(Interrupt& interrupt) = 0;

 protected:
  Backend() = default;
  Backend(const Backend&) = default;
  Backend& operator=(const Backend&) = default;
};

// BackendMaker makes the backends of a job whose ranks do not move their data by CpuBackend. Thread: engine only.
class BackendMaker {
 public:
  virtual ~BackendMaker() = default;
  // Makes a backend for a process set (0: all) of these ranks of the job, ascending. They are more than one, include
  // this rank, and have just connected in `mesh`. The mesh outlives the backend.
  virtual Result<std::unique_ptr<Backend>> make(int process_set, const std::vector<int>& ranks, Mesh& mesh) = 0;
  // Whether small operations of a node's ranks may still bypass the backend, through shared memory.
  [[nodiscard]] virtual bool keeps_quick_path() const = 0;

 protected:
  BackendMaker() = default;
  BackendMaker(const BackendMaker&) = default;
  BackendMaker& operator=(const BackendMaker&) = default;
};

}  // namespace hvd
