#include "runtime/io/event_loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace hvd {
namespace {

constexpr std::uint64_t kWakeId = 0;
constexpr int kBatch = 64;
constexpr std::size_t kSpareTimers = 16;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create(const Clock& clock) {
  Fd epoll_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd.is_open()) {
    return Error::from_errno("epoll_create1");
  }
  Fd wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.is_open()) {
    return Error::from_errno("eventfd");
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll_fd.get(), EPOLL_CTL_ADD, wake_fd.get(), &event) != 0) {
    return Error::from_errno("epoll_ctl(eventfd)");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(clock, std::move(epoll_fd), std::move(wake_fd)));
}

EventLoop::EventLoop(const Clock& clock, Fd epoll_fd, Fd wake_fd)
    : clock_(clock), epoll_fd_(std::move(epoll_fd)), wake_fd_(std::move(wake_fd)), now_(clock.now()) {}

EventLoop::~EventLoop() = default;

Result<WatchId> EventLoop::watch(int fd, std::uint32_t events, WatchHandler handler) {
  const WatchId id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Error::from_errno("epoll_ctl(add)");
  }
  watches_.emplace(id, Watch{fd, events, std::make_shared<WatchHandler>(std::move(handler))});
  return id;
}

void EventLoop::rewatch(WatchId id, std::uint32_t events) {
  const auto found = watches_.find(id);
  if (found == watches_.end() || found->second.events == events) {
    return;
  }
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  HVD_CHECK(::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, found->second.fd, &event) == 0);
  found->second.events = events;
}

void EventLoop::unwatch(WatchId id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) {
    return;
  }
  // This fails only if the descriptor is closed already, and then epoll has removed it by itself.
  ::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watches_.erase(found);
}

TimerId EventLoop::after(Duration delay, Task task) {
  const TimerId id = next_id_++;
  const TimePoint at = clock_.now() + delay;
  if (spare_timers_.empty()) {
    timer_index_.emplace(id, timers_.emplace(at, Timer{id, std::move(task)}));
    return id;
  }
  auto timer = std::move(spare_timers_.back());
  spare_timers_.pop_back();
  timer.key() = at;
  timer.mapped() = Timer{id, std::move(task)};
  auto index = std::move(spare_index_.back());
  spare_index_.pop_back();
  index.key() = id;
  index.mapped() = timers_.insert(std::move(timer));
  timer_index_.insert(std::move(index));
  return id;
}

EventLoop::Task EventLoop::remove_timer(TimerIndex::iterator found) {
  auto timer = timers_.extract(found->second);
  Task task = std::exchange(timer.mapped().task, nullptr);
  if (spare_timers_.size() < kSpareTimers) {
    spare_timers_.push_back(std::move(timer));
    spare_index_.push_back(timer_index_.extract(found));
  } else {
    timer_index_.erase(found);
  }
  return task;
}

void EventLoop::cancel(TimerId id) {
  const auto found = timer_index_.find(id);
  if (found != timer_index_.end()) {
    remove_timer(found);
  }
}

void EventLoop::postpone(Duration stopped) {
  Timers later;
  while (!timers_.empty()) {
    auto timer = timers_.extract(timers_.begin());
    timer.key() += stopped;
    const TimerId id = timer.mapped().id;
    timer_index_.at(id) = later.insert(later.end(), std::move(timer));
  }
  timers_.swap(later);
}

void EventLoop::post(Task task) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    posted_.push_back(std::move(task));
  }
  wake();
}

void EventLoop::stop() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  wake();
}

void EventLoop::wake() {
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, so the loop is awake already.
  [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof one);
}

Result<void> EventLoop::watch_signals(const std::vector<int>& signals, std::function<void(int)> handler) {
  HVD_CHECK(!signal_fd_.is_open());
  sigset_t set;
  sigemptyset(&set);
  for (const int signo : signals) {
    sigaddset(&set, signo);
  }
  if (const int failed = ::pthread_sigmask(SIG_BLOCK, &set, nullptr); failed != 0) {
    return Error::from_errno("pthread_sigmask", failed);
  }
  signal_fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signal_fd_.is_open()) {
    return Error::from_errno("signalfd");
  }
  auto read_signals = [this, handler = std::move(handler)](std::uint32_t) {
    signalfd_siginfo info{};
    while (::read(signal_fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      handler(static_cast<int>(info.ssi_signo));
    }
  };
  HVD_TRY(watch(signal_fd_.get(), EPOLLIN, std::move(read_signals)));
  return {};
}

int EventLoop::wait_ms(std::optional<Deadline> deadline) const {
  std::optional<TimePoint> until;
  if (!timers_.empty()) {
    until = timers_.begin()->first;
  }
  if (deadline && (!until || deadline->at() < *until)) {
    until = deadline->at();
  }
  if (!until) {
    return -1;
  }
  const Duration left = *until - clock_.now();
  if (left <= Duration::zero()) {
    return 0;
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  constexpr std::int64_t kMax = 1'000'000'000;
  return static_cast<int>(ms < kMax ? ms : kMax);
}

void EventLoop::run_due_timers() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const Task task = remove_timer(timer_index_.find(timers_.begin()->second.id));
    task();
  }
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    tasks.swap(posted_);
  }
  for (const Task& task : tasks) {
    task();
  }
}

Result<void> EventLoop::turn(std::optional<Deadline> deadline) {
  std::array<epoll_event, kBatch> events{};
  const int ready = ::epoll_wait(epoll_fd_.get(), events.data(), kBatch, wait_ms(deadline));
  ++wakeups_;
  now_ = clock_.now();
  if (ready < 0 && errno != EINTR) {
    return Error::from_errno("epoll_wait");
  }
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    // a copy, because the structure is packed and find() would bind to a misaligned word
    const WatchId id = event.data.u64;
    if (id == kWakeId) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_fd_.get(), &count, sizeof count);
      continue;
    }
    // Look it up again, because an earlier handler of this batch may have removed it.
    const auto found = watches_.find(id);
    if (found != watches_.end()) {
      const std::shared_ptr<WatchHandler> handler = found->second.handler;
      (*handler)(event.events);
    }
  }
  run_due_timers();
  run_posted();
  return {};
}

Result<void> EventLoop::run() {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (stop_) {
        stop_ = false;
        return {};
      }
    }
    HVD_TRY(turn());
  }
}

}  // namespace hvd
