#include "launcher/survey/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>

#include "launcher/process/close_descriptors.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostBytes = 1U << 20U;

// The copy keeps nothing of the session open: whoever waits for the session's end would have to wait for the copy.
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
      close_descriptors(first, keep - 1, 0);  // an old kernel lacks it; then they stay open until we end
    }
    first = std::max(first, keep + 1);
  }
  close_descriptors(first, ~0U, 0);
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
    static_cast<void>(write_all(answer, work(fd)));  // the errand's caller sees a short answer
  } catch (const std::exception&) {
    ::_exit(1);  // out of memory; the parent sees that there is no answer
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Errand>> Errand::start(EventLoop& loop, Duration patience, Fd fd, const Work& work, Done done) {
  HVD_TRY_ASSIGN(Pipe pipe, make_pipe());
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return Error::from_errno("cannot start a process (fork)");
  }
  if (pid == 0) {
    run_copy(parent, fd.get(), pipe.write_end.get(), work);
  }
  std::unique_ptr<Errand> errand(new Errand(loop, std::move(done)));
  HVD_TRY_ASSIGN(errand->copy_, Child::adopt(loop, pid, std::move(pipe.read_end), errand->handlers()));
  errand->timer_ = loop.after(patience, [self = errand.get(), patience] {
    self->end(Error(Code::kTimeout, "no answer within " + duration_text(patience)));
  });
  return errand;
}

Errand::~Errand() {
  loop_.cancel(timer_);
}

Child::Handlers Errand::handlers() {
  const auto end_without_answer = [this] {
    end(Error(Code::kSystem, "the process that was to find out has ended without an answer"));
  };
  Child::Handlers handlers;
  handlers.on_output = [this, end_without_answer](Child::Stream, std::string_view bytes) {
    if (bytes_.size() >= kMostBytes) {
      return end_without_answer();
    }
    bytes_ += bytes;
  };
  handlers.on_output_end = [this, end_without_answer](Child::Stream) {
    if (bytes_.empty()) {
      return end_without_answer();
    }
    end(std::move(bytes_));
  };
  return handlers;
}

void Errand::end(Result<std::string> outcome) {
  loop_.cancel(std::exchange(timer_, 0));
  copy_.reset();
  const Done done = std::move(done_);
  done(std::move(outcome));  // may destroy this
}

}  // namespace hvd::launch
