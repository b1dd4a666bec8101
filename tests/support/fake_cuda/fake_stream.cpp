#include "tests/support/fake_cuda/fake_stream.h"

#include <thread>
#include <utility>

#include "tests/support/fake_cuda/fake_faults.h"

namespace hvd::fake {

void Mark::pass() {
  const std::lock_guard lock(mutex_);
  is_passed_ = true;
  time_ = std::chrono::steady_clock::now();
  passed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [this] { return is_passed_; });
}

bool Mark::is_passed() {
  const std::lock_guard lock(mutex_);
  return is_passed_;
}

std::chrono::steady_clock::time_point Mark::time() {
  const std::lock_guard lock(mutex_);
  return time_;
}

}  // namespace hvd::fake

void CUstream_st::start(std::chrono::microseconds delay) {
  std::thread([self = shared_from_this(), delay] { self->run(delay); }).detach();
}

void CUstream_st::push(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  if (tasks_.size() >= kRoom) {
    static_cast<void>(hvd::fake::count_call("full stream"));
    changed_.wait(lock, [this] { return tasks_.size() < kRoom; });
  }
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void CUstream_st::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

void CUstream_st::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !is_running_; });
}

bool CUstream_st::is_idle() {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !is_running_;
}

void CUstream_st::run(std::chrono::microseconds delay) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || is_closed_; });
    if (tasks_.empty()) {
      return;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    is_running_ = true;
    lock.unlock();
    if (delay.count() > 0) {
      std::this_thread::sleep_for(delay);  // sleeps: a slow device is what was asked for
    }
    task();
    task = nullptr;  // what it holds goes before others may take the stream for idle
    lock.lock();
    is_running_ = false;
    changed_.notify_all();
  }
}
