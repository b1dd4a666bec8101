// Streams and events of the fake driver. A stream's tasks run one after the other on a thread of its own; an event is
// where it was recorded last.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace hvd::fake {

// The primary context of one device. Lives until the process ends.
struct Context {
  int ordinal = 0;
  std::atomic<int> retained{0};
  std::atomic<int> lost{0};  // the CUresult of what ended it; every later call fails with that
};

// A place that a stream has to pass. Thread: any.
class Mark {
 public:
  void pass();
  void wait();
  [[nodiscard]] bool is_passed();
  // Once it is passed.
  [[nodiscard]] std::chrono::steady_clock::time_point time();

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  bool is_passed_ = false;
  std::chrono::steady_clock::time_point time_;
};

}  // namespace hvd::fake

// Thread: any. Its own thread keeps it alive until the queue is empty.
struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  // How much waits on it at most: as with the real driver, a call that brings more blocks until there is room.
  static constexpr std::size_t kRoom = 1024;

  explicit CUstream_st(hvd::fake::Context& owner) : context(owner) {}
  void start(std::chrono::microseconds delay);
  void push(std::function<void()> task);
  // What is on it still runs; its thread then ends.
  void close();
  void wait_until_idle();
  [[nodiscard]] bool is_idle();

  hvd::fake::Context& context;
  std::atomic<bool> is_capturing{false};

 private:
  void run(std::chrono::microseconds delay);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_running_ = false;
  bool is_closed_ = false;
};

struct CUevent_st {
  explicit CUevent_st(hvd::fake::Context& owner, bool has_time) : context(owner), is_timed(has_time) {}
  hvd::fake::Context& context;
  bool is_timed;
  std::shared_ptr<hvd::fake::Mark> last;  // null: never recorded. Guarded by the registry's mutex
};
