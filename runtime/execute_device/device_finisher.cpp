#include "runtime/execute_device/device_finisher.h"

#include <set>

#include "runtime/base/thread.h"

namespace hvd {
namespace {

constexpr Duration kPoll = std::chrono::microseconds(50);      // between looks at the device
constexpr Duration kErrorPoll = std::chrono::milliseconds(2);  // between looks at NCCL
constexpr Duration kAbortTime = std::chrono::seconds(2);       // how long NCCL may take to abort while no batch ends
constexpr Duration kLetsGo = std::chrono::seconds(1);          // how long the device may end no batch after that
constexpr Duration kNap = std::chrono::milliseconds(1);        // between looks of threads that wait for batches to end

// An event whose device has failed gives no more information, so the batch counts as ended.
bool is_over(const DeviceBatch& batch) {
  if (batch.done == nullptr) {
    return true;
  }
  const auto done = batch.done->is_done();
  return !done.ok() || done.value();
}

// Progress limits a wait for batches to end. The time counts anew whenever one has ended, because a program may have
// launched many before the job failed, and the device works them off.
class Progress {
 public:
  Progress(const std::deque<DeviceBatch>& batches, Duration limit)
      : batches_(batches), limit_(limit), deadline_(Deadline::after(limit)) {}

  [[nodiscard]] bool may_wait() {
    while (over_ < batches_.size() && is_over(batches_[over_])) {
      ++over_;
      deadline_ = Deadline::after(limit_);
    }
    return !deadline_.has_passed();
  }
  [[nodiscard]] bool is_through() const { return over_ == batches_.size(); }

 private:
  const std::deque<DeviceBatch>& batches_;
  const Duration limit_;
  Deadline deadline_;
  std::size_t over_ = 0;  // of the first batches
};

}  // namespace

DeviceFinisher::~DeviceFinisher() {
  static_cast<void>(close(Deadline(TimePoint()), Error(Code::kCancelled, "the job was left while it was under way")));
}

void DeviceFinisher::start() {
  if (!thread_.joinable() && !is_closing_) {
    thread_ = start_thread("hvd-device", [this] {
      handlers_.on_start();
      run();
    });
  }
}

void DeviceFinisher::add(DeviceBatch batch) {
  const std::lock_guard lock(mu_);
  batch.since = time_.look(std::chrono::steady_clock::now());
  batches_.push_back(std::move(batch));
  start();
  changed_.notify_all();
}

void DeviceFinisher::watch(std::shared_ptr<NcclComm> comm) {
  const std::lock_guard lock(mu_);
  comms_.push_back(std::move(comm));
  if (cause_) {
    start();
  }
  changed_.notify_all();
}

void DeviceFinisher::unwatch(const std::shared_ptr<NcclComm>& comm) {
  const std::lock_guard lock(mu_);
  std::erase(comms_, comm);
}

void DeviceFinisher::abort(const Error& cause) {
  const std::lock_guard lock(mu_);
  if (cause_) {
    return;
  }
  cause_ = cause;
  if (!comms_.empty()) {
    start();
  }
  changed_.notify_all();
}

Result<void> DeviceFinisher::drain(std::size_t left, Interrupt& interrupt) {
  std::unique_lock lock(mu_);
  while (batches_.size() > left) {
    changed_.wait_for(lock, kNap);
    lock.unlock();
    HVD_TRY(interrupt.check());
    lock.lock();
  }
  return {};
}

bool DeviceFinisher::close(Deadline deadline, const Error& cause) {
  {
    std::unique_lock lock(mu_);
    // An error that was reported but not acted on ends the wait as well.
    while (!batches_.empty() && !cause_ && !has_told_ && !deadline.has_passed()) {
      changed_.wait_for(lock, kNap);
    }
    if (!batches_.empty() && !cause_) {
      cause_ = cause;
    }
    is_closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  const std::lock_guard lock(mu_);
  return has_let_go_;
}

void DeviceFinisher::run() {
  std::unique_lock lock(mu_);
  for (;;) {
    if (cause_ && (!batches_.empty() || !comms_.empty())) {
      end_all(lock);
    } else if (batches_.empty()) {
      if (is_closing_) {
        return;
      }
      changed_.wait(lock);
    } else if (!look(lock)) {
      changed_.wait_for(lock, kPoll);
    }
  }
}

// Looks at the first batch of each process set; returns true if one has ended.
bool DeviceFinisher::look(std::unique_lock<std::mutex>& lock) {
  std::set<int> seen;
  for (auto batch = batches_.begin(); batch != batches_.end(); ++batch) {
    if (!seen.insert(batch->process_set).second || batch->has_failed) {
      continue;
    }
    const auto done = batch->done == nullptr ? Result<bool>(true) : batch->done->is_done();
    if (!done.ok()) {
      tell(lock, done.error());
      return false;
    }
    if (done.value()) {
      end_batch(lock, batch, {});
      return true;
    }
  }
  look_for_errors(lock);
  return false;
}

void DeviceFinisher::look_for_errors(std::unique_lock<std::mutex>& lock) {
  const TimePoint now = std::chrono::steady_clock::now();
  if (now < next_errors_ || has_told_) {
    return;
  }
  next_errors_ = now + kErrorPoll;
  const std::vector<std::shared_ptr<NcclComm>> comms = comms_;
  lock.unlock();
  Result<void> first;
  for (const auto& comm : comms) {
    if (auto found = comm->async_error(); first.ok() && !found.ok()) {
      first = std::move(found);
    }
  }
  lock.lock();
  if (!first.ok()) {
    tell(lock, first.error());
  } else {
    look_for_stalls(lock, time_.look(now));
  }
}

void DeviceFinisher::look_for_stalls(std::unique_lock<std::mutex>& lock, TimePoint now) {
  if (batches_.empty() || stall_.end_after == Duration::zero()) {
    return;
  }
  const DeviceBatch& oldest = batches_.front();
  if (!oldest.ops.empty() && now - oldest.since > stall_.end_after) {
    tell(lock, Error(Code::kTimeout, "stalled: '" + oldest.ops.front()->what.name +
                                         "' was launched on all ranks' devices and is not done; "
                                         "NCCL_DEBUG=INFO shows more (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)"));
  }
}

void DeviceFinisher::tell(std::unique_lock<std::mutex>& lock, const Error& error) {
  if (has_told_) {
    return;
  }
  has_told_ = true;
  changed_.notify_all();
  lock.unlock();
  handlers_.on_error(error);
  lock.lock();
}

void DeviceFinisher::end_batch(std::unique_lock<std::mutex>& lock, std::deque<DeviceBatch>::iterator at,
                               const Result<void>& result) {
  DeviceBatch ended = std::move(*at);
  batches_.erase(at);
  changed_.notify_all();
  lock.unlock();
  handlers_.on_batch_end(std::move(ended), result);
  lock.lock();
}

// Ends the communicators first, because their work still uses memory of operations that are about to be reported
// failed.
void DeviceFinisher::end_all(std::unique_lock<std::mutex>& lock) {
  const std::vector<std::shared_ptr<NcclComm>> comms = std::exchange(comms_, {});
  Progress aborting(batches_, kAbortTime);
  lock.unlock();
  const bool are_through = abort_all(comms, [&] {
    const std::lock_guard again(mu_);
    return aborting.may_wait();
  });
  lock.lock();
  // NCCL may have launched some work after the event was recorded; now it launches nothing more, so record again.
  for (const DeviceBatch& batch : batches_) {
    if (batch.done != nullptr) {
      static_cast<void>(batch.done->record(batch.stream).ok());
    }
  }
  Progress stopping(batches_, kLetsGo);
  while (stopping.may_wait() && !stopping.is_through()) {
    changed_.wait_for(lock, kPoll);
  }
  has_let_go_ = has_let_go_ && are_through && stopping.is_through();
  while (!batches_.empty()) {
    end_batch(lock, batches_.begin(), *cause_);
  }
}

}  // namespace hvd
