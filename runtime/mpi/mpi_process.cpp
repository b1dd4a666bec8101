#include "runtime/mpi/mpi_process.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "runtime/base/thread.h"

namespace hvd {

// Worker is a thread that makes one call after the other. It is abandoned if a call does not return in time.
class MpiProcess::Worker {
 public:
  using Call = std::function<Result<void>()>;

  static std::shared_ptr<Worker> start() {
    auto made = std::make_shared<Worker>();
    start_thread("hvd-mpi", [made] { made->work(); }).detach();
    return made;
  }

  // Returns nothing if the call was not done by the deadline. Without a deadline it waits forever.
  std::optional<Result<void>> run(Call call, std::optional<Deadline> deadline) {
    auto answer = std::make_shared<std::optional<Result<void>>>();
    std::unique_lock lock(mu_);
    calls_.push_back([answer, call = std::move(call), this] {
      Result<void> result = call();
      const std::lock_guard done(mu_);
      *answer = std::move(result);
    });
    changed_.notify_all();
    const auto is_done = [&] { return answer->has_value(); };
    if (deadline) {
      changed_.wait_until(lock, deadline->at(), is_done);
    } else {
      changed_.wait(lock, is_done);
    }
    return *answer;
  }

 private:
  [[noreturn]] void work() {
    for (;;) {
      std::function<void()> call;
      {
        std::unique_lock lock(mu_);
        changed_.wait(lock, [this] { return !calls_.empty(); });
        call = std::move(calls_.front());
        calls_.pop_front();
      }
      call();
      changed_.notify_all();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  // guarded by mu_
  std::deque<std::function<void()>> calls_;
};

MpiProcess& MpiProcess::instance() {
  static MpiProcess* const only = std::unique_ptr<MpiProcess>(new MpiProcess()).release();
  return *only;
}

Result<MpiLibrary*> MpiProcess::start(const MpiOptions& options, Deadline deadline) {
  const std::lock_guard lock(mu_);
  if (process_ && !process_->is_here()) {
    return Error(Code::kNotInitialized, "this process was forked from a rank of MPI, and is none itself");
  }
  if (!spoilt_.empty()) {
    return Error(Code::kLostPeer, "MPI cannot be used in this process any more: " + spoilt_ + "; start the job again");
  }
  if (is_running_) {
    HVD_TRY_ASSIGN(const bool is_over, library_->is_finalized());
    if (is_over) {
      return Error(Code::kInvalid, "MPI_Finalize has been called; call hvd.init() before that");
    }
    return library_.get();
  }
  HVD_TRY(load(options));
  HVD_TRY_ASSIGN(const bool is_over, library_->is_finalized());
  if (is_over) {
    return Error(Code::kInvalid, "MPI_Finalize has been called; call hvd.init() before that");
  }
  HVD_TRY_ASSIGN(const bool is_the_programs, library_->is_initialized());
  HVD_TRY(is_the_programs ? adopt() : begin(options, deadline));
  is_running_ = true;
  return library_.get();
}

Result<void> MpiProcess::load(const MpiOptions& options) {
  if (library_ == nullptr) {
    auto loaded = MpiLibrary::load(options.library, options.prefers_mpich, DynLib::Scope::kGlobal);
    if (!loaded.ok()) {
      return loaded.error();
    }
    library_ = std::move(loaded).value();
    process_.emplace();
  }
  return {};
}

Result<void> MpiProcess::adopt() {
  HVD_TRY_ASSIGN(threads_, library_->threads());
  worker_ = Worker::start();
  return {};
}

Result<void> MpiProcess::begin(const MpiOptions& options, Deadline deadline) {
  worker_ = Worker::start();
  const auto given = std::make_shared<MpiThreads>(MpiThreads::kSingle);
  const MpiThreads wanted = options.wants_all_threads ? MpiThreads::kMultiple : MpiThreads::kSerialized;
  const auto begun = worker_->run(
      [given, wanted, library = library_.get()]() -> Result<void> {
        HVD_TRY_ASSIGN(*given, library->start(wanted));
        return {};
      },
      deadline);
  if (!begun) {
    spoilt_ = "MPI_Init_thread did not return in time";
    return Error(Code::kTimeout,
                 "MPI_Init_thread has not returned: some rank that mpirun has started has not called hvd.init() yet");
  }
  HVD_TRY(*begun);
  threads_ = *given;
  is_ours_ = true;
  return {};
}

Result<void> MpiProcess::run(const std::string& what, std::function<Result<void>()> call, Deadline deadline) {
  std::shared_ptr<Worker> worker;
  bool is_for_main = false;
  {
    const std::lock_guard lock(mu_);
    worker = worker_;
    is_for_main = threads_ < MpiThreads::kSerialized;
  }
  // An MPI for one thread requires the thread that initialised it, if that is the caller. Python's hvd.init() calls
  // this on a separate thread while the program's thread waits; then the worker serves as well, and it has a deadline.
  if (is_for_main) {
    HVD_TRY_ASSIGN(const bool is_main, library_->is_main_thread());
    if (is_main) {
      return call();
    }
  }
  const auto done = worker->run(std::move(call), deadline);
  if (!done) {
    spoil(what + " did not return in time");
    return Error(Code::kTimeout, what + " has not returned: some rank has not come to it");
  }
  return *done;
}

MpiThreads MpiProcess::threads() const {
  const std::lock_guard lock(mu_);
  return threads_;
}

bool MpiProcess::is_usable() const {
  const std::lock_guard lock(mu_);
  if (!is_running_ || !spoilt_.empty() || !process_->is_here()) {
    return false;
  }
  const auto is_over = library_->is_finalized();
  return is_over.ok() && !is_over.value();
}

void MpiProcess::spoil(const std::string& why) {
  const std::lock_guard lock(mu_);
  if (spoilt_.empty()) {
    spoilt_ = why;
  }
}

void MpiProcess::end_at_exit() {
  {
    const std::lock_guard lock(mu_);
    if (!std::exchange(is_ours_, false)) {
      return;
    }
  }
  if (!is_usable()) {
    return;
  }
  // No caller is left that could handle a failure.
  static_cast<void>(worker_->run([library = library_.get()] { return library->finish(); }, std::nullopt));
}

}  // namespace hvd
