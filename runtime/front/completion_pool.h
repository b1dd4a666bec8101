// CompletionPool is the set of threads that complete a framework's asynchronous calls. A framework goes on with its
// program in the very thread that reports the completion, and may wait there for the next collective. So the report
// must not come from libhvd's threads, which would then block, nor from a fixed number of others. One more thread
// starts whenever all are busy.
//
// Thread: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace hvd::front {

// Job is the work to do once the operations of one call have ended. It is made before they start, because the callback
// that posts it runs on libhvd's thread, where no allocation may fail.
class Job {
 public:
  Job() = default;
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // May take long, and may wait for jobs that are posted later.
  virtual void run() noexcept = 0;

 private:
  friend class CompletionPool;
  Job* next_ = nullptr;  // in the queue
};

class CompletionPool {
 public:
  // A thread that has been idle for `idle_time` ends; the first two stay.
  explicit CompletionPool(std::chrono::milliseconds idle_time = std::chrono::seconds(10));
  // Runs all posted jobs, and waits for all threads.
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // The pool of this process. It is never destroyed, because a program may exit while a framework still runs.
  static CompletionPool& shared();

  // Queues the job. A thread of the pool runs it, in the order of posting, and deletes it.
  void post(std::unique_ptr<Job> job) noexcept;

  [[nodiscard]] std::size_t threads() const;

 private:
  void start_thread() noexcept;
  void work();

  // constant after construction
  const std::chrono::milliseconds idle_time_;
  mutable std::mutex mu_;
  std::condition_variable has_work_;
  std::condition_variable has_ended_;
  // guarded by mu_
  Job* first_ = nullptr;
  Job* last_ = nullptr;
  std::size_t queued_ = 0;
  std::size_t idle_ = 0;  // threads that wait for a job
  std::size_t threads_ = 0;
  bool ends_ = false;
};

}  // namespace hvd::front
