// MpiProcess: MPI as this process has it. MPI can be started once in the life of a process, and must be ended by who
// started it, when the last job of the process is over: so this outlives all contexts, and is, beside the default
// context, the runtime's only other global.
//
// Where the program has called MPI_Init itself (mpi4py does when it is imported), that is respected, and so is its end.
// Else MPI is started here, on a thread of its own, since MPI_Init waits for all ranks without a limit; the same thread
// ends it when the process exits.
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
  // Never destroyed: threads may still call while the process exits.
  static MpiProcess& instance();

  // MPI, running. Every rank of mpirun has to come here, or to MPI_Init. Blocks until they have or the deadline has
  // passed.
  Result<MpiLibrary*> start(const MpiOptions& options, Deadline deadline);
  // Runs what may wait for other ranks without a limit, but waits for it no longer than until the deadline; MPI is
  // spoilt when that passes. Without a limit on MPI's own thread where MPI was started for that alone. `what`:
  // "MPI_Comm_dup". The call may outlive the caller: it must own what it uses.
  Result<void> run(const std::string& what, std::function<Result<void>()> call, Deadline deadline);
  // What MPI was started with; kSingle before.
  [[nodiscard]] MpiThreads threads() const;
  // MPI is running, and can be used.
  [[nodiscard]] bool is_usable() const;
  // An operation was left half done, so that nothing can be done with MPI any more, MPI_Finalize included; start()
  // fails from then on.
  void spoil(const std::string& why);
  // When the process exits: MPI_Finalize, if MPI was started here. Waits for all ranks, as every program of MPI does:
  // a rank that goes without it is taken by mpirun for one that has died.
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
  bool is_ours_ = false;                // to finalize
  std::optional<ProcessMark> process_;  // that started it; a fork has no MPI
  std::string spoilt_;                  // why; empty: it is not
};

}  // namespace hvd
