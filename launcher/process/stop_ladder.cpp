#include "launcher/process/stop_ladder.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

namespace hvd::launch {
namespace {

// A killed process has this time to be gone. One in a hung system call is left.
constexpr auto kKillTime = std::chrono::seconds(2);

void await_end(int pidfd, Deadline deadline) {
  pollfd p{pidfd, POLLIN, 0};
  while (::poll(&p, 1, deadline.poll_ms()) < 0) {
  }
}

}  // namespace

void StopLadder::end(pid_t pid, Fd pidfd, Duration patience) {
  const std::uint64_t ticket = next_ticket_++;
  ::kill(-pid, SIGTERM);
  Entry entry;
  entry.pid = pid;
  entry.pidfd = std::move(pidfd);
  entry.deadline = Deadline::after(patience);
  const auto watch = loop_.watch(entry.pidfd.get(), EPOLLIN, [this, ticket](std::uint32_t) { reap(ticket); });
  entry.watch = watch.ok() ? watch.value() : 0;  // without it, the destructor reaps
  entry.timer = loop_.after(patience, [pid] { ::kill(-pid, SIGKILL); });
  entries_.emplace(ticket, std::move(entry));
}

void StopLadder::reap(std::uint64_t ticket) {
  auto entry = entries_.extract(ticket);
  loop_.unwatch(entry.mapped().watch);
  loop_.cancel(entry.mapped().timer);
  // The group's number cannot belong to others while its leader is not reaped.
  ::kill(-entry.mapped().pid, SIGKILL);
  ::waitpid(entry.mapped().pid, nullptr, WNOHANG);
}

StopLadder::~StopLadder() {
  while (!entries_.empty()) {
    const Entry& entry = entries_.begin()->second;
    await_end(entry.pidfd.get(), entry.deadline);
    ::kill(-entry.pid, SIGKILL);
    await_end(entry.pidfd.get(), Deadline::after(kKillTime));
    reap(entries_.begin()->first);
  }
}

}  // namespace hvd::launch
