// DefaultContext is the process's one job, for callers that pass no context. It is one of the runtime's few mutable
// globals, which scripts/layers.py --explain lists.
//
// Joining and leaving take seconds. They run outside the lock, marked by a state that other threads wait for. The
// atfork handlers hold the lock across a fork, so that a child finds it usable and gets an error instead of a hang.
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
  // The instance is never destroyed, because threads may still call while the process exits.
  static DefaultContext& instance();

  Result<void> init(const hvd_options* options);
  void shutdown();
  // Used at process exit: as shutdown(), but it does not wait for a thread that is joining or leaving.
  void shutdown_at_exit();
  // Says whether this process has joined a job and is not leaving it.
  bool is_joined();
  // Null if there is none. In a forked child it is the parent's, and only its rank numbers may be used. While the job
  // is left it is still there, for those that wait; it takes no new operation.
  std::shared_ptr<hvd_ctx> get();

 private:
  enum class State : std::uint8_t { kNone, kJoining, kJoined, kLeaving };

  void leave(std::unique_lock<std::mutex>& lock);

  // guarded by mu_
  std::mutex mu_;
  std::condition_variable changed_;
  State state_ = State::kNone;
  pid_t owner_ = 0;                   // the process that is joining or has joined
  std::shared_ptr<hvd_ctx> context_;  // shared, so that a call in progress keeps it alive
};

}  // namespace hvd
