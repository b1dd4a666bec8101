#include "runtime/front/completion_pool.h"

#include <system_error>
#include <thread>

#include "runtime/front/without_signals.h"

namespace hvd::front {
namespace {

constexpr std::size_t kStay = 2;

}  // namespace

// The first thread starts here. If the system refuses more threads later, this one still does all jobs, one by one.
CompletionPool::CompletionPool(std::chrono::milliseconds idle_time) : idle_time_(idle_time) {
  const std::lock_guard lock(mu_);
  start_thread();
}

CompletionPool::~CompletionPool() {
  std::unique_lock lock(mu_);
  ends_ = true;
  has_work_.notify_all();
  has_ended_.wait(lock, [this] { return threads_ == 0; });
}

CompletionPool& CompletionPool::shared() {
  static auto* const pool = new CompletionPool;
  return *pool;
}

void CompletionPool::post(std::unique_ptr<Job> job) noexcept {
  Job* const added = job.release();
  const std::lock_guard lock(mu_);
  (last_ == nullptr ? first_ : last_->next_) = added;
  last_ = added;
  ++queued_;
  if (queued_ > idle_) {
    start_thread();
  }
  has_work_.notify_one();
}

std::size_t CompletionPool::threads() const {
  const std::lock_guard lock(mu_);
  return threads_;
}

// The caller holds mu_.
void CompletionPool::start_thread() noexcept {
  const WithoutSignals here;
  try {
    std::thread([this] { work(); }).detach();
    ++threads_;
  } catch (const std::system_error&) {
    // A busy thread takes the job when it has finished its own, and the next post() tries again.
  }
}

void CompletionPool::work() {
  std::unique_lock lock(mu_);
  for (;;) {
    if (first_ == nullptr && !ends_) {
      ++idle_;
      const bool is_needed = has_work_.wait_for(lock, idle_time_, [this] { return first_ != nullptr || ends_; });
      --idle_;
      if (!is_needed && threads_ > kStay) {
        break;
      }
      continue;
    }
    if (first_ == nullptr) {
      break;
    }
    Job* const job = first_;
    first_ = job->next_;
    if (first_ == nullptr) {
      last_ = nullptr;
    }
    --queued_;
    lock.unlock();
    const std::unique_ptr<Job> owned(job);
    owned->run();
    lock.lock();
  }
  --threads_;
  if (threads_ == 0) {
    has_ended_.notify_all();  // with the lock held, because the pool may be destroyed right after
  }
}

}  // namespace hvd::front
