// MpiProcess is the process's use of MPI. MPI can be initialised only once in the life of a process. Whoever
// initialised it must finalise it, after the last job of the process. So this object outlives all contexts and is a
// mutable global, as the default context is.
//
// If the program has called MPI_Init itself (mpi4py does so when it is imported), it is left to the program to finalise
// MPI too. Otherwise MPI is initialised here, on a thread of its own, since MPI_Init waits for all ranks without a
// limit. The same thread finalises it when the process exits.
// Thread: any (mutex mu_).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/process_mark.h"
#include "runtime/base/result.h"
#include "runtime/mpi/mpi_library.h"

namespace hvd {

struct MpiOptions {
  std::string library;            // see MpiLibrary::load
  bool prefers_mpich = false;     // the same
  bool wants_all_threads = true;  // MPI_THREAD_MULTIPLE rather than SERIALIZED
};

class MpiProcess {
 public:
  // The instance is never destroyed, because threads may still call while the process exits.
  static MpiProcess& instance();

  // Returns the initialised MPI. Every rank of mpirun has to call this, or MPI_Init. Blocks until they have, or the
  // deadline has passed.
  Result<MpiLibrary*> start(const MpiOptions& options, Deadline deadline);
  // Runs a call that may wait for other ranks without a limit, but waits for it only until the deadline; when that
  // passes, MPI becomes unusable. If MPI was initialised for one thread only, and this is that thread, the call runs
  // here and without a limit. `what` names it: "MPI_Comm_dup". The call may outlive the caller, so it must own what it
  // uses.
  Result<void> run(const std::string& what, std::function<Result<void>()> call, Deadline deadline);
  // The level with which MPI was initialised; kSingle before.
  [[nodiscard]] MpiThreads threads() const;
  // Whether MPI is initialised and can be used.
  [[nodiscard]] bool is_usable() const;
  // Records that an operation was left half done. Nothing can be done with MPI any more, not even MPI_Finalize, and
  // start() fails from then on.
  void spoil(const std::string& why);
  // Calls MPI_Finalize at process exit, if libhvd initialised MPI. It waits for all ranks, as every MPI program does:
  // mpirun takes a rank that exits without it for one that has died.
  void end_at_exit();

 private:
  class Worker;

  MpiProcess() = default;
  Result<void> load(const MpiOptions& options);
  Result<void> adopt();
  Result<void> begin(const MpiOptions& options, Deadline deadline);

  mutable std::mutex mu_;
  // guarded by mu_
  std::unique_ptr<MpiLibrary> library_;
  std::shared_ptr<Worker> worker_;  // shared with its thread, which may be in a call that never returns
  MpiThreads threads_ = MpiThreads::kSingle;
  bool is_running_ = false;
  bool is_ours_ = false;                // libhvd must finalise it
  std::optional<ProcessMark> process_;  // the process that initialised it; a fork has no MPI
  std::string spoilt_;                  // why MPI is unusable; empty: it is usable
};

}  // namespace hvd
