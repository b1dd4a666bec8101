#include "launcher/transport/ssh_query.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

extern char** environ;

namespace hvd::launch {
namespace {

constexpr std::size_t kMaxOutput = 256 * 1024;  // `ssh -G` prints about 5 KiB; anything longer is not ssh

// The child must not inherit the mask under which the loop reads its signals by signalfd.
void reset_signals(posix_spawnattr_t& attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

}  // namespace

SshQuery::SshQuery(EventLoop& loop, Done done) : loop_(loop), done_(std::move(done)) {}

SshQuery::~SshQuery() {
  close(out_);
  close(err_);
  loop_.unwatch(pid_watch_);
  if (pid_ > 0) {
    // Not reaped yet, so the number is still ours; after SIGKILL the wait is over at once.
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

Result<void> SshQuery::start(const std::vector<std::string>& argv) {
  HVD_TRY_ASSIGN(Pipe out, make_pipe());
  HVD_TRY_ASSIGN(Pipe err, make_pipe());
  HVD_TRY(set_nonblocking(out.read_end.get()));
  HVD_TRY(set_nonblocking(err.read_end.get()));
  HVD_TRY(spawn(argv, out.write_end.get(), err.write_end.get()));
  out_.fd = std::move(out.read_end);
  err_.fd = std::move(err.read_end);
  HVD_TRY(watch(out_));
  HVD_TRY(watch(err_));
  if (pid_ < 0) {
    return {};  // no such program: both pipes are at their end, which finishes the query from the loop
  }
  pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_.is_open()) {
    return Error::from_errno("pidfd_open");
  }
  HVD_TRY_ASSIGN(pid_watch_, loop_.watch(pidfd_.get(), EPOLLIN, [this](std::uint32_t) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    // ECHILD: somebody else has reaped it, and how it ended shows in what it printed.
    if (ended == pid_ || (ended < 0 && errno == ECHILD)) {
      answer_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      pid_ = -1;
      loop_.unwatch(pid_watch_);
      finish_when_over();
    }
  }));
  return {};
}

Result<void> SshQuery::spawn(const std::vector<std::string>& argv, int out_fd, int err_fd) {
  std::vector<char*> words;
  for (const std::string& word : argv) {
    words.push_back(const_cast<char*>(word.c_str()));  // posix_spawn takes char* and does not write
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err_fd, STDERR_FILENO);
  reset_signals(attributes);
  const int failed = ::posix_spawnp(&pid_, words[0], &files, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    pid_ = -1;
    if (failed != ENOENT) {
      return Error::from_errno("cannot run 'ssh -G'", failed);
    }
    answer_.has_program = false;
  }
  return {};
}

Result<void> SshQuery::watch(Output& output) {
  HVD_TRY_ASSIGN(output.watch,
                 loop_.watch(output.fd.get(), EPOLLIN, [this, &output](std::uint32_t) { on_readable(output); }));
  return {};
}

void SshQuery::on_readable(Output& output) {
  std::array<char, 16 * 1024> buffer{};
  const ssize_t got = ::read(output.fd.get(), buffer.data(), buffer.size());
  if (got > 0 && output.text.size() + static_cast<std::size_t>(got) <= kMaxOutput) {
    output.text.append(buffer.data(), static_cast<std::size_t>(got));
  } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
    close(output);
    finish_when_over();
  }
}

void SshQuery::close(Output& output) {
  if (output.fd.is_open()) {
    loop_.unwatch(output.watch);
    output.fd.reset();
  }
}

void SshQuery::finish_when_over() {
  if (out_.fd.is_open() || err_.fd.is_open() || pid_ > 0 || !done_) {
    return;
  }
  answer_.output = std::move(out_.text);
  answer_.errors = std::move(err_.text);
  const Done done = std::exchange(done_, nullptr);
  done(std::move(answer_));
}

}  // namespace hvd::launch
