// EventLoop runs one thread's events with one epoll: descriptors, deadlines, signals, and work posted from other
// threads.
//
// It keeps these rules, each because of a failure seen elsewhere:
// - A registration is a new number, never a pointer or a descriptor. So an event of a closed descriptor cannot reach
//   the next owner of its number. A handler that is removed during a batch is not called again in that batch.
// - There is no tick: the loop sleeps until something happens or the next deadline, so that an idle loop costs nothing.
// - The time is read once per turn.
// Thread: loop only, except post() and stop(), which any thread may call.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

using WatchId = std::uint64_t;
using TimerId = std::uint64_t;

class EventLoop {
 public:
  using WatchHandler = std::function<void(std::uint32_t epoll_events)>;
  using Task = std::function<void()>;

  static Result<std::unique_ptr<EventLoop>> create(const Clock& clock);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Watches a descriptor, level-triggered. The loop does not own `fd`; unwatch it before closing it. `events` is
  // EPOLLIN | EPOLLOUT; EPOLLHUP and EPOLLERR are always reported. It fails for descriptors that epoll cannot watch
  // (regular files).
  Result<WatchId> watch(int fd, std::uint32_t events, WatchHandler handler);
  // Changes the events; 0 means only hang-up and error.
  void rewatch(WatchId id, std::uint32_t events);
  void unwatch(WatchId id);

  TimerId after(Duration delay, Task task);
  void cancel(TimerId id);
  // This process was stopped for so long, in which nothing that it waits for could come: all timers are put off by it.
  void postpone(Duration stopped);

  // Runs `task` on the loop's thread, after the current batch. Thread: any.
  void post(Task task);

  // Delivers these signals to `handler` on the loop (signalfd). It blocks them for this thread, so call it before any
  // other thread starts; children must restore the mask.
  Result<void> watch_signals(const std::vector<int>& signals, std::function<void(int signo)> handler);

  // Runs until stop(). An error is always a failure of epoll itself.
  Result<void> run();
  // Runs one batch: waits until something happens, or until the deadline, and runs what is due.
  Result<void> turn(std::optional<Deadline> deadline = std::nullopt);
  // Thread: any.
  void stop();

  // For a thread that sleeps outside turn(): the descriptor is readable when turn() has something to do. sleep_ms() is
  // the longest time to sleep in milliseconds (-1: no limit; as poll(2) takes it).
  [[nodiscard]] int fd() const { return epoll_fd_.get(); }
  [[nodiscard]] int sleep_ms() const { return wait_ms(std::nullopt); }

  [[nodiscard]] const Clock& clock() const { return clock_; }
  // The time at which this turn began.
  [[nodiscard]] TimePoint now() const { return now_; }
  // How many times epoll has returned so far; tests use it to check that an idle loop does not wake up.
  [[nodiscard]] std::uint64_t wakeups() const { return wakeups_; }

 private:
  struct Watch {
    int fd = -1;
    std::uint32_t events = 0;
    std::shared_ptr<WatchHandler> handler;  // shared: a handler may remove itself while it runs
  };
  struct Timer {
    TimerId id = 0;
    Task task;
  };

  using Timers = std::multimap<TimePoint, Timer>;
  using TimerIndex = std::unordered_map<TimerId, Timers::iterator>;

  explicit EventLoop(const Clock& clock, Fd epoll_fd, Fd wake_fd);
  void wake();
  [[nodiscard]] int wait_ms(std::optional<Deadline> deadline) const;
  void run_due_timers();
  // Removes the timer and returns its task.
  Task remove_timer(TimerIndex::iterator found);
  void run_posted();

  // constant after construction
  const Clock& clock_;
  Fd epoll_fd_;
  Fd wake_fd_;
  // loop only
  std::unordered_map<WatchId, Watch> watches_;
  Timers timers_;
  TimerIndex timer_index_;
  // Nodes of finished timers, so that a timer that is set again and again allocates nothing.
  std::vector<Timers::node_type> spare_timers_;
  std::vector<TimerIndex::node_type> spare_index_;
  std::uint64_t next_id_ = 1;
  Fd signal_fd_;
  TimePoint now_;
  std::uint64_t wakeups_ = 0;
  // guarded by mu_
  std::mutex mu_;
  std::vector<Task> posted_;
  bool stop_ = false;
};

}  // namespace hvd
