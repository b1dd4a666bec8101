#include "launcher/agent/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <stdlib.h>

#include "launcher/process/descendants.h"
#include "launcher/process/exit_status.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/machine.h"

namespace hvd::launch {
namespace {

constexpr auto kKillLimit = std::chrono::seconds(10);
// An agent that is stopped (SIGSTOP) answers nobody, and cannot end its ranks. It gets as much time as a launcher on
// another host waits for a sign of life (kMissedHeartbeats).
constexpr auto kStoppedLimit = std::chrono::seconds(30);

constexpr std::string_view kScratchName = "hvdrun-XXXXXX";
// The file in the directory that the guardian and the agent hold a lock on: the kernel gives it back when both are
// gone, also by SIGKILL.
constexpr const char* kOwnerFile = "/owner";
constexpr std::size_t kMostBootId = 256;
// Where the agent's folder is unless TMPDIR says otherwise. The path of a socket in it has at most 107 bytes, and batch
// systems have longer folders in TMPDIR.
constexpr const char* kUsualBase = "/tmp";
constexpr std::size_t kMostBaseBytes = 80;

// A lock there asks a server, which may not answer.
bool is_on_server(const std::string& directory) {
  struct statfs info{};
  return ::statfs(directory.c_str(), &info) != 0 || info.f_type == NFS_SUPER_MAGIC;
}

// Makes the file of the owner, which gets its name only when the lock is held. Not open: there is none, and the
// directory stays if nobody is left to remove it.
Fd mark_as_owned(const std::string& directory) {
  const std::string boot = boot_id();
  if (boot.empty() || is_on_server(directory)) {
    return {};
  }
  const std::string name = directory + kOwnerFile;
  const std::string first_name = name + ".new";
  Fd file(::open(first_name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool is_owned = file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                        ::write(file.get(), boot.data(), boot.size()) == static_cast<ssize_t>(boot.size()) &&
                        ::rename(first_name.c_str(), name.c_str()) == 0;
  return is_owned ? std::move(file) : Fd();
}

// Says whether this is the directory of an agent of this user, whose owners are gone. A folder for all temporary files
// may be shared with other machines, whose locks are not always seen here: so it must have been made on this one.
bool is_left_behind(const std::string& directory) {
  struct stat info{};
  if (::lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
    return false;
  }
  const Fd file(::open((directory + kOwnerFile).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::array<char, kMostBootId> boot{};
  const ssize_t length = file.is_open() ? ::read(file.get(), boot.data(), boot.size()) : -1;
  return length > 0 && std::string_view(boot.data(), static_cast<std::size_t>(length)) == boot_id() &&
         ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

// The directory only ever has sockets, the host file, the texts that ranks run, and the file of the owner.
void remove_scratch(const std::string& directory) {
  if (const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir); dir != nullptr) {
    while (const dirent* entry = ::readdir(dir.get())) {
      ::unlink((directory + "/" + entry->d_name).c_str());  // fails for "." and "..", as it should
    }
  }
  ::rmdir(directory.c_str());
}

// Removes directories that agents of this user have left here, as those do that are killed at once with their guardian:
// a batch system kills all of a job, and so does the kernel where memory is short.
void remove_left_behind(const std::string& base) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(base.c_str()), ::closedir);
  while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    const bool is_scratch = name.size() == kScratchName.size() && name.starts_with("hvdrun-");
    if (const std::string path = base + "/" + entry->d_name; is_scratch && is_left_behind(path)) {
      remove_scratch(path);
    }
  }
}

// Sleeps until a child changes, at most `ms`.
void await_child(int ms) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const timespec limit{ms / 1000, (ms % 1000) * 1'000'000L};
  ::sigtimedwait(&set, nullptr, &limit);
}

// Kills everything of the job that is left: the agent is gone and cannot give it any grace.
void kill_what_is_left() {
  const Deadline deadline = Deadline::after(kKillLimit);
  for (;;) {
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    const std::vector<pid_t> left = pid < 0 ? std::vector<pid_t>() : children_of_job();
    if (left.empty() || deadline.has_passed()) {
      return;
    }
    signal_children(left, SIGKILL);
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

ScratchBase scratch_base(const std::string& tmpdir, bool may_be_anothers) {
  if (tmpdir.empty() || tmpdir.size() > kMostBaseBytes) {
    return {kUsualBase, ""};
  }
  struct stat info{};
  const bool is_there = ::stat(tmpdir.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (may_be_anothers && (!is_there || ::access(tmpdir.c_str(), W_OK | X_OK) != 0)) {
    return {kUsualBase, "TMPDIR is " + tmpdir + ", which is " + (is_there ? "not writable" : "no directory") +
                            " on this host; using " + kUsualBase};
  }
  return {tmpdir, ""};
}

Result<int> run_guarded(const std::string& base, const std::function<int(const std::string&)>& agent, bool is_users) {
  // A tool that ends the command that led here ends its process group, but the session with the launcher may go on
  // without it. setsid() fails when this process leads a group already: then it is that command, and ends with it.
  if (!is_users) {
    ::setsid();
  }
  HVD_TRY(become_subreaper());
  std::string scratch = base + "/" + std::string(kScratchName);
  if (::mkdtemp(scratch.data()) == nullptr) {
    return Error::from_errno("cannot make a directory in " + base + "; set TMPDIR to one that is writable");
  }
  const Fd owner = mark_as_owned(scratch);  // the agent keeps it open as well
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
  remove_left_behind(base);  // the agent does not wait for that
  const int code = await_agent(pid, signals);
  kill_what_is_left();
  remove_scratch(scratch);
  return code;
}

}  // namespace hvd::launch
