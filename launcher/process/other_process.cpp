#include "launcher/process/other_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/base/thread.h"

namespace hvd::launch {
namespace {

// How late the end of a process that is not our child may be noticed without a pidfd.
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

struct ProcessStat {
  char state = 0;  // 'Z', 'X': it has ended; 0: there is no such process
  std::int64_t began = 0;
};

ProcessStat stat_of(int pid) {
  constexpr int kState = 3;  // as proc(5) numbers the fields
  constexpr int kStartTime = 22;
  const std::string text = text_of_file("/proc/" + std::to_string(pid) + "/stat");
  const std::string_view state = stat_field(text, kState);
  return {state.empty() ? '\0' : state.front(), parse_number<std::int64_t>(stat_field(text, kStartTime)).value_or(0)};
}

void await_end(pid_t pid, std::int64_t began) {
  siginfo_t info{};
  int waited = 0;
  do {
    waited = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  } while (waited != 0 && errno == EINTR);
  if (waited == 0) {
    return;
  }
  // It is not our child, or was reaped.
  for (;;) {
    const ProcessStat now = stat_of(pid);
    if (now.state == 0 || now.state == 'Z' || now.state == 'X' || now.began != began) {
      return;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Fd open_pidfd(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

Result<Fd> open_process(pid_t pid) {
  Fd fd = open_pidfd(pid);
  if (fd.is_open()) {
    return fd;
  }
  return errno == ENOSYS || errno == EPERM ? open_process_by_thread(pid) : Result<Fd>(Error::from_errno("pidfd_open"));
}

Result<Fd> open_process_by_thread(pid_t pid) {
  const std::int64_t began = start_of_process(pid);
  if (began == 0) {
    return Error::from_errno("there is no process " + std::to_string(pid), ESRCH);
  }
  Fd ended(::eventfd(0, EFD_CLOEXEC));
  Fd told(ended.is_open() ? ::fcntl(ended.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!told.is_open()) {
    return Error::from_errno("eventfd");
  }
  try {
    start_thread("hvd-process", [pid, began, told = std::move(told)] {
      await_end(pid, began);
      static_cast<void>(::eventfd_write(told.get(), 1));
    }).detach();
  } catch (const std::system_error& error) {
    return Error::from_errno("a thread that waits for a process", error.code().value());
  }
  return ended;
}

void signal_process(const Fd& process, pid_t pid, int signo) {
  const bool is_sent = ::syscall(SYS_pidfd_send_signal, process.get(), signo, nullptr, 0) == 0;
  if (!is_sent && (errno == EBADF || errno == ENOSYS || errno == EPERM)) {  // no pidfd, or no such call
    ::kill(pid, signo);
  }
}

std::int64_t start_of_process(int pid) {
  return stat_of(pid).began;
}

bool ignores_signal(pid_t pid, int signo) {
  static constexpr std::string_view kIgnored = "SigIgn:";
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kIgnored)) {
      const std::uint64_t ignored = std::strtoull(line.c_str() + kIgnored.size(), nullptr, 16);
      return ((ignored >> static_cast<unsigned>(signo - 1)) & 1U) != 0;
    }
  }
  return false;
}

}  // namespace hvd::launch
