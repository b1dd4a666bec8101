#include "launcher/agent/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include <dirent.h>
#include <stdlib.h>

#include "launcher/process/descendants.h"
#include "launcher/process/exit_status.h"
#include "runtime/base/clock.h"

namespace hvd::launch {
namespace {

constexpr auto kKillLimit = std::chrono::seconds(10);
// An agent that is stopped (SIGSTOP) answers nobody, and cannot end its ranks. It gets as much time as a launcher on
// another host waits for a sign of life (kMissedHeartbeats).
constexpr auto kStoppedLimit = std::chrono::seconds(30);

// The directory only ever has sockets, the host file and the texts that ranks run.
void remove_scratch(const std::string& directory) {
  if (const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir); dir != nullptr) {
    while (const dirent* entry = ::readdir(dir.get())) {
      ::unlink((directory + "/" + entry->d_name).c_str());  // fails for "." and "..", as it should
    }
  }
  ::rmdir(directory.c_str());
}

// Sleeps until a child changes, at most `ms`.
void await_child(int ms) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const timespec limit{ms / 1000, (ms % 1000) * 1'000'000L};
  ::sigtimedwait(&set, nullptr, &limit);
}

// Kills everything that is left: the agent is gone and cannot give it any grace.
void kill_what_is_left() {
  const Deadline deadline = Deadline::after(kKillLimit);
  for (;;) {
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if ((pid < 0 && errno == ECHILD) || deadline.has_passed()) {
      return;
    }
    signal_children(children_of_self(), SIGKILL);
    await_child(50);
  }
}

// Returns the next of the signals, or 0 when the deadline has passed. All others are blocked, so only a stop of this
// process interrupts the wait. The deadline may have passed meanwhile, with SIGCONT queued after other signals.
int next_signal(const sigset_t& signals, Deadline deadline) {
  const int ms = deadline.poll_ms();
  const timespec limit{ms / 1000, (ms % 1000) * 1'000'000L};
  const int signo = ::sigtimedwait(&signals, nullptr, &limit);
  return signo < 0 && errno == EINTR ? SIGCONT : std::max(0, signo);
}

// Waits for the agent. A polite request to end is passed on to it; an agent that stays stopped is killed.
int await_agent(pid_t agent, const sigset_t& signals) {
  ::signal(SIGPIPE, SIG_IGN);  // what it says may have no reader any more, and it has ranks to end
  const Deadline never(TimePoint::max());
  Deadline patience = never;  // of an agent that is stopped
  for (;;) {
    const int signo = next_signal(signals, patience);
    if (signo == SIGTERM || signo == SIGINT || signo == SIGHUP) {
      ::kill(agent, SIGTERM);
    }
    if (signo == SIGUSR1 || signo == SIGUSR2) {
      ::kill(agent, signo);
    }
    if (signo == SIGCONT && patience.at() != never.at()) {
      patience = Deadline::after(kStoppedLimit);  // all of the job was stopped, as Slurm suspends one
    }
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
      if (pid != agent) {
        continue;
      }
      if (WIFSTOPPED(status)) {
        patience = Deadline::after(kStoppedLimit);
      } else if (WIFCONTINUED(status)) {
        patience = never;
      } else {
        return ExitStatus::from_wait(status).shell_code();
      }
    }
    if (patience.has_passed()) {
      static constexpr std::string_view kWords = "hvdrun-agent: it was stopped (SIGSTOP) for 30 s, and is killed\n";
      static_cast<void>(::write(STDERR_FILENO, kWords.data(), kWords.size()) == 0);
      ::kill(agent, SIGKILL);
      patience = never;
    }
  }
}

}  // namespace

Result<int> run_guarded(const std::string& base, const std::function<int(const std::string&)>& agent, bool is_users) {
  // A tool that ends the command that led here ends its process group, but the session with the launcher may go on
  // without it. setsid() fails when this process leads a group already: then it is that command, and ends with it.
  if (!is_users) {
    ::setsid();
  }
  HVD_TRY(become_subreaper());
  std::string scratch = base + "/hvdrun-XXXXXX";
  if (::mkdtemp(scratch.data()) == nullptr) {
    return Error::from_errno("cannot make a directory in " + base + "; set TMPDIR to one that is writable");
  }
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signo : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT}) {
    sigaddset(&signals, signo);
  }
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const pid_t guardian = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const Error why = Error::from_errno("cannot start the agent (fork)");
    remove_scratch(scratch);
    return why;
  }
  if (pid == 0) {
    // mpirun's rank leads a process group that gets SIGKILL a second after SIGTERM. We leave the group: otherwise we
    // and the agent would be killed at once, and the ranks' processes would stay.
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != guardian || !become_subreaper().ok()) {
      ::_exit(1);
    }
    const int code = agent(scratch);
    if (::getppid() != guardian) {
      remove_scratch(scratch);  // nobody else will
    }
    ::_exit(code);
  }
  // The connection belongs to the agent: if we held its ends open, nobody would see the agent close them.
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null_fd, STDIN_FILENO);
  ::dup2(null_fd, STDOUT_FILENO);
  ::prctl(PR_SET_NAME, "hvdrun-guardian");
  const int code = await_agent(pid, signals);
  kill_what_is_left();
  remove_scratch(scratch);
  return code;
}

}  // namespace hvd::launch
