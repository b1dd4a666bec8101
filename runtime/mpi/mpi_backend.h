// MpiBackend implements whole collectives over MPI, for all ranks of a job or for a process set; its maker is here too.
//
// It needs at least MPI_THREAD_SERIALIZED, since any thread that waits for a result may run the engine. Thread: engine
// only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/staging.h"
#include "runtime/mpi/mpi_collectives.h"
#include "runtime/mpi/mpi_comm.h"

namespace hvd {

class MpiBackend final : public Backend {
 public:
  // `ranks` are ranks of `comm`, ascending; all process sets of the job share `comm`.
  MpiBackend(std::shared_ptr<MpiComm> comm, std::vector<int> ranks, int tag);

  Result<void> allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) override;
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
  std::shared_ptr<MpiComm> comm_;
  MpiCollectives all_;
  Staging staging_;
};

class MpiBackendMaker final : public BackendMaker {
 public:
  // The ranks of `comm` are those of the job.
  explicit MpiBackendMaker(std::shared_ptr<MpiComm> comm) : comm_(std::move(comm)) {}
  Result<std::unique_ptr<Backend>> make(int process_set, const std::vector<int>& ranks, Mesh& mesh) override;
  [[nodiscard]] bool keeps_quick_path() const override { return false; }

 private:
  std::shared_ptr<MpiComm> comm_;
};

}  // namespace hvd
