// launcher/agent/death_order: which of several processes has ended first.
#include "launcher/agent/death_order.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include <doctest/doctest.h>

#include "launcher/process/other_process.h"

namespace hvd::launch::death_order_test {
namespace {

pid_t start_child() {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  return pid;
}

// Returns when it is dead; it is not reaped.
void kill_child(pid_t pid) {
  ::kill(pid, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
}

}  // namespace

TEST_CASE("children are told in the order in which they have ended, however many there are") {
  if (!open_pidfd(::getpid()).is_open()) {
    MESSAGE("SKIPPED: this kernel has no pidfds");
    return;
  }
  std::vector<pid_t> children(100);
  DeathOrder deaths;
  for (pid_t& child : children) {
    child = start_child();
    deaths.watch(child);
  }
  CHECK(deaths.take().empty());
  std::vector<pid_t> killed;
  for (std::size_t i = 0; i < children.size(); ++i) {
    killed.push_back(children[(i * 37 + 5) % children.size()]);
    kill_child(killed.back());
  }
  const pid_t forgotten = killed[3];
  deaths.forget(forgotten);
  killed.erase(killed.begin() + 3);
  std::vector<pid_t> told;
  deaths.reap([&told](pid_t pid, const ExitStatus& status) {
    CHECK(status.value == SIGKILL);
    told.push_back(pid);
  });
  killed.push_back(forgotten);  // it comes with those that nobody watches
  CHECK(told == killed);
  CHECK(::waitpid(-1, nullptr, 0) < 0);
}

TEST_CASE("a child that is told is told once, also where a copy of this process holds its descriptor") {
  if (!open_pidfd(::getpid()).is_open()) {
    MESSAGE("SKIPPED: this kernel has no pidfds");
    return;
  }
  DeathOrder deaths;
  const pid_t first = start_child();
  deaths.watch(first);
  const pid_t copy = start_child();  // it has the descriptor of the first one
  deaths.watch(copy);
  kill_child(first);
  CHECK(deaths.take() == std::vector<pid_t>{first});
  CHECK(deaths.take().empty());
  kill_child(copy);
  CHECK(deaths.take() == std::vector<pid_t>{copy});
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

}  // namespace hvd::launch::death_order_test
