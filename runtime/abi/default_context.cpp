#include "runtime/abi/default_context.h"

#include <unistd.h>

#include <cstdlib>

#include <pthread.h>

#include "runtime/mpi/mpi_job.h"

namespace hvd {

DefaultContext& DefaultContext::instance() {
  static DefaultContext* const only = [] {
    auto* made = std::make_unique<DefaultContext>().release();
    ::pthread_atfork([] { instance().mu_.lock(); }, [] { instance().mu_.unlock(); }, [] { instance().mu_.unlock(); });
    // atexit runs the last registration first, so MPI ends when no job uses it any more.
    std::atexit([] { end_mpi_at_exit(); });
    std::atexit([] { instance().shutdown_at_exit(); });
    return made;
  }();
  return *only;
}

Result<void> DefaultContext::init(const hvd_options* options) {
  std::unique_lock lock(mu_);
  if (state_ != State::kNone && owner_ != ::getpid()) {
    return Error(Code::kNotInitialized,
                 "this process was forked from a rank of a job, and cannot join it too; start ranks with hvdrun");
  }
  changed_.wait(lock, [this] { return state_ == State::kNone || state_ == State::kJoined; });
  if (state_ == State::kJoined) {
    return {};
  }
  state_ = State::kJoining;
  owner_ = ::getpid();
  lock.unlock();
  // Whatever happens in between, even an exception, no thread may wait for this state forever.
  struct Settle {
    DefaultContext& self;
    std::unique_lock<std::mutex>& lock;
    std::shared_ptr<hvd_ctx> made;
    ~Settle() {
      lock.lock();
      self.state_ = made == nullptr ? State::kNone : State::kJoined;
      self.context_ = std::move(made);
      self.changed_.notify_all();
    }
  } settle{*this, lock, nullptr};
  HVD_TRY_ASSIGN(settle.made, make_context(options));
  return {};
}

void DefaultContext::shutdown() {
  std::unique_lock lock(mu_);
  if (state_ == State::kNone || owner_ != ::getpid()) {
    return;
  }
  changed_.wait(lock, [this] { return state_ == State::kNone || state_ == State::kJoined; });
  leave(lock);
}

void DefaultContext::shutdown_at_exit() {
  std::unique_lock lock(mu_, std::try_to_lock);
  if (lock.owns_lock() && owner_ == ::getpid()) {
    leave(lock);
  }
}

void DefaultContext::leave(std::unique_lock<std::mutex>& lock) {
  if (state_ != State::kJoined) {
    return;
  }
  // The context stays until the engine has ended: who waits for an operation meanwhile must not take its end for
  // granted and free the memory that the engine works on.
  state_ = State::kLeaving;
  const std::shared_ptr<hvd_ctx> leaving = context_;
  lock.unlock();
  leaving->close();
  lock.lock();
  context_ = nullptr;
  state_ = State::kNone;
  changed_.notify_all();
}

bool DefaultContext::is_joined() {
  const std::lock_guard lock(mu_);
  return state_ == State::kJoined && !context_->is_forked();
}

std::shared_ptr<hvd_ctx> DefaultContext::get() {
  const std::lock_guard lock(mu_);
  return context_;
}

}  // namespace hvd
