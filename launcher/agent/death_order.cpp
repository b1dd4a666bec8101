#include "launcher/agent/death_order.h"

#include <sys/epoll.h>
#include <sys/wait.h>

#include <array>
#include <cstdint>

#include "launcher/process/other_process.h"

namespace hvd::launch {

void DeathOrder::watch(pid_t pid) {
  if (!epoll_.is_open()) {
    epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  }
  Fd process = open_pidfd(pid);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<std::uint64_t>(pid);
  if (process.is_open() && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) == 0) {
    watched_[pid] = std::move(process);
  }
}

void DeathOrder::forget(pid_t pid) {
  const auto found = watched_.find(pid);
  if (found == watched_.end()) {
    return;
  }
  // Closing it is not enough: a copy of this process that was forked meanwhile may hold it, too.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.get(), nullptr);
  watched_.erase(found);
}

std::vector<pid_t> DeathOrder::take() {
  std::vector<pid_t> ended;
  std::array<epoll_event, 64> events{};
  for (int count = 1; count > 0 && !watched_.empty();) {
    count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const auto pid = static_cast<pid_t>(events[static_cast<std::size_t>(i)].data.u64);
      ended.push_back(pid);
      forget(pid);
    }
  }
  return ended;
}

void DeathOrder::reap(const std::function<void(pid_t pid, const ExitStatus& status)>& tell) {
  int status = 0;
  for (const pid_t ended : take()) {
    if (::waitpid(ended, &status, WNOHANG) == ended) {
      tell(ended, ExitStatus::from_wait(status));
    }
  }
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    tell(pid, ExitStatus::from_wait(status));
  }
}

}  // namespace hvd::launch
