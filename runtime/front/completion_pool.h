// CompletionPool: the threads that end a framework's asynchronous calls. A framework that is told of the end goes on
// with its program in the very thread that tells it, and may wait there for the next collective. So neither libhvd's
// threads may tell it, nor a fixed number of others: one more starts whenever all are busy.
//
// Thread: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace hvd::front {

// What is to be done once the operations of one call have ended. Made before they start, since the callback that posts
// it runs on libhvd's thread, where nothing may fail.
class Job {
 public:
  Job() = default;
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // May take long, and wait for jobs that are posted later.
  virtual void run() noexcept = 0;

 private:
  friend class CompletionPool;
  Job* next_ = nullptr;  // in the queue
};

class CompletionPool {
 public:
  // A thread that found nothing to do for so long ends; the first two stay.
  explicit CompletionPool(std::chrono::milliseconds idle_time = std::chrono::seconds(10));
  // Runs what was posted, and waits for all threads.
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // The process's own. It is never destroyed, as a program may exit while a framework still runs.
  static CompletionPool& shared();

  // Has a thread of the pool run the job, in the order of posting, and delete it.
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
