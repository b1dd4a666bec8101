#include "launcher/process/child_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "launcher/process/close_descriptors.h"
#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// This is a shell's code for "not found / cannot run"; the parent reports the real reason from the error pipe.
constexpr int kNoExec = 127;

[[noreturn]] void fail(const ChildPlan& plan, ChildStage stage) {
  const ChildFailure failure{stage, errno};
  [[maybe_unused]] const auto written = ::write(plan.error_fd, &failure, sizeof failure);
  ::_exit(kNoExec);
}

// A program for another machine is none; shells tell it by a zero byte too.
bool is_text(const char* path) {
  std::array<char, 256> begin{};
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.is_open() ? ::read(file.get(), begin.data(), begin.size()) : 0;
  return got > 0 && std::find(begin.begin(), begin.begin() + got, '\0') == begin.begin() + got;
}

// The parent's handlers mean nothing after exec, but an ignored signal is inherited: a rank that ignores SIGPIPE or
// SIGINT because its launcher did would not end when it should.
void reset_signals() {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  for (int signo = 1; signo < NSIG; ++signo) {
    ::sigaction(signo, &standard, nullptr);  // fails for SIGKILL, SIGSTOP and the C library's own, as it may
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool limit_open_files(std::uint64_t count) {
  rlimit limit{};
  if (count == 0) {
    return true;
  }
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return false;
  }
  limit.rlim_cur = count;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool place_standard_fds(const ChildPlan& plan) {
  // The descriptors are first moved above 0..2, so that no dup2 closes one that is still needed.
  std::array<int, 3> fds = {plan.stdin_fd, plan.stdout_fd, plan.stderr_fd};
  for (int& fd : fds) {
    if (fd >= 0 && fd < 3) {
      fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
      if (fd < 0) {
        return false;
      }
    }
  }
  for (int target = 0; target < 3; ++target) {
    const int fd = fds[static_cast<std::size_t>(target)];
    if (fd >= 0 && ::dup2(fd, target) < 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

void run_child(const ChildPlan& plan) {
  if (plan.new_session) {
    ::setsid();
  }
  if (plan.dies_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, plan.death_signal);
    if (::getppid() != plan.parent) {
      ::_exit(kNoExec);  // the parent died before the line above took effect
    }
  }
  if (plan.is_readable_by_parent) {
    ::prctl(PR_SET_PTRACER, plan.parent);  // fails where the kernel has no Yama, and then nothing is restricted
  }
  reset_signals();
  if (!place_standard_fds(plan) || !limit_open_files(plan.open_files)) {
    fail(plan, ChildStage::kSetup);
  }
  // This marks whatever a library opened without close-on-exec. An old kernel lacks the call, and then only descriptors
  // that were opened with it are closed.
  close_descriptors(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (plan.cwd != nullptr && ::chdir(plan.cwd) != 0) {
    fail(plan, ChildStage::kChdir);
  }
  if (plan.affinity_bytes > 0 && ::sched_setaffinity(0, plan.affinity_bytes, plan.affinity) != 0) {
    fail(plan, ChildStage::kBind);
  }
  ::execve(plan.path, plan.argv, plan.envp);
  if (errno == ENOEXEC) {
    if (is_text(plan.path)) {
      ::execve(plan.shell_argv[0], plan.shell_argv, plan.envp);
    }
    errno = ENOEXEC;
  }
  fail(plan, ChildStage::kExec);
}

}  // namespace hvd::launch
