#include "launcher/process/other_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include <doctest/doctest.h>

#include "launcher/process/spawn.h"
#include "runtime/base/clock.h"

namespace hvd::launch::other_process_test {
namespace {

constexpr Duration kPatience = std::chrono::seconds(300);

bool is_readable(const Fd& fd, Duration patience) {
  pollfd p{fd.get(), POLLIN, 0};
  return ::poll(&p, 1, Deadline::after(patience).poll_ms()) == 1 && (p.revents & POLLIN) != 0;
}

pid_t start(std::vector<std::string> argv) {
  SpawnOptions options;
  options.argv = std::move(argv);
  options.environment = {"PATH=/usr/bin:/bin"};
  return spawn(options).value();
}

}  // namespace

// Each case runs with the kernel's pidfds and without them.
TEST_CASE("the end of a child is told, and once more to who looks later") {
  for (const auto& open : {open_process, open_process_by_thread}) {
    const pid_t pid = start({"sleep", "1000"});
    const Fd process = open(pid).value();
    CHECK_FALSE(is_readable(process, Duration::zero()));
    ::kill(pid, SIGKILL);
    CHECK(is_readable(process, kPatience));
    CHECK(is_readable(process, Duration::zero()));
    int status = 0;
    CHECK(::waitpid(pid, &status, 0) == pid);  // nobody else has reaped it
    CHECK(WTERMSIG(status) == SIGKILL);
  }
}

TEST_CASE("a child that has ended, or is reaped by somebody else, has ended") {
  for (const auto& open : {open_process, open_process_by_thread}) {
    const pid_t pid = start({"true"});
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
    CHECK(is_readable(open(pid).value(), kPatience));
    const Fd process = open(pid).value();
    CHECK(::waitpid(pid, nullptr, 0) == pid);
    CHECK(is_readable(process, kPatience));
    CHECK_FALSE(open(pid).ok());  // the number is free
    CHECK(start_of_process(pid) == 0);
  }
}

TEST_CASE("the end of a process that is not a child is told, and it gets signals") {
  for (const auto& open : {open_process, open_process_by_thread}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    SpawnOptions options;
    options.argv = {"sh", "-c", "sleep 1000 & echo $!; wait"};
    options.environment = {"PATH=/usr/bin:/bin"};
    options.stdout_fd = ends[1];
    const pid_t parent = spawn(options).value();
    ::close(ends[1]);  // NOLINT
    char text[32] = {};
    REQUIRE(::read(ends[0], text, sizeof text - 1) > 0);
    const pid_t grandchild = static_cast<pid_t>(std::stol(text));
    const Fd process = open(grandchild).value();
    CHECK(start_of_process(grandchild) > 0);
    CHECK_FALSE(is_readable(process, std::chrono::milliseconds(120)));
    signal_process(process, grandchild, SIGTERM);
    CHECK(is_readable(process, kPatience));
    CHECK(::waitpid(parent, nullptr, 0) == parent);
    ::close(ends[0]);  // NOLINT
  }
}

TEST_CASE("when a process began does not change, and who is not there has not begun") {
  CHECK(start_of_process(::getpid()) > 0);
  CHECK(start_of_process(::getpid()) == start_of_process(::getpid()));
  CHECK(start_of_process(0x7ffffff0) == 0);
}

TEST_CASE("which signals a process ignores is seen from outside") {
  const auto before = ::signal(SIGUSR2, SIG_IGN);
  CHECK(ignores_signal(::getpid(), SIGUSR2));
  ::signal(SIGUSR2, before);
  CHECK_FALSE(ignores_signal(::getpid(), SIGUSR2));
  CHECK_FALSE(ignores_signal(-1, SIGUSR2));  // there is no such process
}

}  // namespace hvd::launch::other_process_test
