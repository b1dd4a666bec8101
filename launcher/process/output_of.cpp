#include "launcher/process/output_of.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/process/exit_status.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostOutput = 1U << 20U;

// Whether `output` was read to its end.
bool read_all(int fd, Deadline deadline, std::string& output) {
  while (output.size() < kMostOutput) {
    pollfd ready{fd, POLLIN, 0};
    const int polled = ::poll(&ready, 1, deadline.poll_ms());
    if (polled < 0 && errno == EINTR) {
      continue;
    }
    if (polled <= 0) {
      return false;
    }
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) {
      return true;
    }
    output.append(buffer, static_cast<std::size_t>(got));
  }
  return false;
}

// Whether it has ended by then; it may live on after it has closed its output.
bool await_end(pid_t pid, Deadline deadline) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.is_open()) {
    return true;  // out of descriptors: the wait that follows has no limit
  }
  pollfd ended{pidfd.get(), POLLIN, 0};
  int polled = 0;
  do {
    polled = ::poll(&ended, 1, deadline.poll_ms());
  } while (polled < 0 && errno == EINTR);
  return polled > 0;
}

}  // namespace

Result<std::string> output_of(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                              Deadline deadline) {
  HVD_TRY_ASSIGN(Pipe pipe, make_pipe());
  SpawnOptions options;
  options.argv = argv;
  options.environment = environment;
  options.stdout_fd = pipe.write_end.get();
  options.stderr_fd = pipe.write_end.get();
  HVD_TRY_ASSIGN(const pid_t pid, spawn(options));
  pipe.write_end.reset();
  std::string output;
  const bool is_whole = read_all(pipe.read_end.get(), deadline, output) && await_end(pid, deadline);
  if (!is_whole) {
    ::kill(-pid, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!is_whole) {
    return Error(Code::kTimeout, "'" + argv.front() + "' has not ended in time");
  }
  if (status != 0) {
    return Error(Code::kSystem, "'" + argv.front() + "' " + ExitStatus::from_wait(status).text());
  }
  return output;
}

}  // namespace hvd::launch
