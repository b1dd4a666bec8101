// DefaultContext: the process's one job, for callers that pass no context. The runtime's only mutable
// global, but for the process's MPI (mpi/mpi_process.h).
//
// Joining and leaving take seconds, so they run outside the lock, marked by a state that others wait on. A fork takes
// the lock with it in an orderly state (atfork handlers), so that a child may ask and gets an error, not a hang.
// Thread: any (mutex mu_).
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/abi/context.h"
#include "runtime/base/result.h"

namespace hvd {

class DefaultContext {
 public:
  // Never destroyed: threads may still call while the process exits.
  static DefaultContext& instance();

  Result<void> init(const hvd_options* options);
  void shutdown();
  // At process exit: as shutdown(), but does not wait for a thread that is joining or leaving just now.
  void shutdown_at_exit();
  // Null when there is none. In a forked child it is the parent's, good for its numbers only.
  std::shared_ptr<hvd_ctx> get();

 private:
  enum class State : std::uint8_t { kNone, kJoining, kJoined, kLeaving };

  void leave(std::unique_lock<std::mutex>& lock);

  // guarded by mu_
  std::mutex mu_;
  std::condition_variable changed_;
  State state_ = State::kNone;
  pid_t owner_ = 0;                   // the process that is joining or has joined
  std::shared_ptr<hvd_ctx> context_;  // shared: a call in flight keeps it
};

}  // namespace hvd
