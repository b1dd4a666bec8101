#include "launcher/agent/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>

#include "runtime/base/duration_text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostBytes = 1U << 20U;

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

// The copy holds nothing of the session: whoever waits for the end of that would wait for us, too.
void leave_session(int fd, int answer) {
  if (const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC); null_fd >= 0) {
    ::dup2(null_fd, STDIN_FILENO);
    ::dup2(null_fd, STDOUT_FILENO);
  }
  std::array<unsigned, 2> kept = {static_cast<unsigned>(std::max(fd, STDERR_FILENO)), static_cast<unsigned>(answer)};
  std::sort(kept.begin(), kept.end());
  unsigned first = STDERR_FILENO + 1;
  for (const unsigned keep : kept) {
    if (keep > first) {
      ::close_range(first, keep - 1, 0);  // an old kernel lacks it; then they stay open until we end
    }
    first = std::max(first, keep + 1);
  }
  ::close_range(first, ~0U, 0);
}

[[noreturn]] void run_copy(pid_t parent, int fd, int answer, const Errand::Work& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(1);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  leave_session(fd, answer);
  try {
    write_all(answer, work(fd));
  } catch (const std::exception&) {
    ::_exit(1);  // out of memory; the parent sees that there is no answer
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Errand>> Errand::start(EventLoop& loop, Duration patience, Fd fd, const Work& work, Done done) {
  HVD_TRY_ASSIGN(Pipe pipe, make_pipe());
  HVD_TRY(set_nonblocking(pipe.read_end.get()));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return Error::from_errno("cannot start a process (fork)");
  }
  if (pid == 0) {
    run_copy(parent, fd.get(), pipe.write_end.get(), work);
  }
  const int raw = pipe.read_end.get();
  std::unique_ptr<Errand> errand(new Errand(loop, pid, std::move(pipe.read_end), std::move(done)));
  HVD_TRY_ASSIGN(errand->watch_,
                 loop.watch(raw, EPOLLIN, [self = errand.get()](std::uint32_t) { self->on_readable(); }));
  errand->timer_ = loop.after(patience, [self = errand.get(), patience] {
    self->timer_ = 0;
    self->end(Error(Code::kTimeout, "no answer within " + duration_text(patience)));
  });
  return errand;
}

Errand::Errand(EventLoop& loop, pid_t pid, Fd answer, Done done)
    : loop_(loop), pid_(pid), answer_(std::move(answer)), done_(std::move(done)) {}

Errand::~Errand() {
  loop_.cancel(timer_);
  if (watch_ != 0) {
    loop_.unwatch(watch_);
    kill_copy();
  }
}

void Errand::on_readable() {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(answer_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got > 0 && bytes_.size() < kMostBytes) {
    bytes_.append(buffer.data(), static_cast<std::size_t>(got));
    return;
  }
  if (got != 0 || bytes_.empty()) {
    end(Error(Code::kSystem, "the process that was to find out has ended without an answer"));
  } else {
    end(std::move(bytes_));
  }
}

void Errand::end(Result<std::string> outcome) {
  if (!outcome.ok()) {
    kill_copy();
  }
  loop_.cancel(timer_);
  loop_.unwatch(std::exchange(watch_, 0));
  const Done done = std::move(done_);
  done(std::move(outcome));  // may destroy this
}

// Its number is ours as long as it was not reaped.
void Errand::kill_copy() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    ::kill(pid_, SIGKILL);
  }
}

}  // namespace hvd::launch
