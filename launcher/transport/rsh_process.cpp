#include "launcher/transport/rsh_process.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

// Bytes one turn may move for one node, so that a loud node does not keep the loop from the others.
constexpr std::size_t kTurnBytes = 512U << 10U;
constexpr std::size_t kReadBytes = 64U << 10U;
// What it left behind may hold its standard error (ssh's ControlPersist does); after this it is not waited for.
constexpr auto kDrainTime = std::chrono::seconds(1);
// Between the end of its output and its own.
constexpr auto kEndTime = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<RshProcess>> RshProcess::start(EventLoop& loop, StopLadder& ladder,
                                                      const std::vector<std::string>& argv,
                                                      const std::vector<std::string>& environment,
                                                      std::uint64_t open_files, Handlers handlers) {
  // Pipes, not a socket: a bash that finds one at its input takes itself for rshd's and reads ~/.bashrc.
  HVD_TRY_ASSIGN(Pipe in, make_pipe());
  HVD_TRY_ASSIGN(Pipe out, make_pipe());
  HVD_TRY_ASSIGN(Pipe err, make_pipe());
  for (const Fd* ours : {&in.write_end, &out.read_end, &err.read_end}) {
    HVD_TRY(set_nonblocking(ours->get()));
  }
  SpawnOptions options;
  options.argv = argv;
  options.environment = environment;
  options.open_files = open_files;
  options.stdin_fd = in.read_end.get();
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  options.death_signal = SIGTERM;
  std::unique_ptr<RshProcess> process(new RshProcess(loop, ladder, std::move(handlers)));
  HVD_TRY_ASSIGN(process->pid_, spawn(options));
  HVD_TRY(process->watch(std::move(in.write_end), std::move(out.read_end), std::move(err.read_end)));
  return process;
}

RshProcess::RshProcess(EventLoop& loop, StopLadder& ladder, Handlers handlers)
    : loop_(loop), ladder_(ladder), handlers_(std::move(handlers)), alive_(std::make_shared<bool>(true)) {}

RshProcess::~RshProcess() {
  *alive_ = false;
  loop_.cancel(end_timer_);
  loop_.unwatch(pid_watch_);
  drop_input();
  close(out_);
  close(err_);
  if (pid_ > 0) {
    ladder_.end(pid_, std::move(pidfd_), patience_);
  }
}

Result<void> RshProcess::watch(Fd in, Fd out, Fd err) {
  in_ = std::move(in);
  out_.fd = std::move(out);
  err_.fd = std::move(err);
  pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_.is_open()) {
    return Error::from_errno("pidfd_open");
  }
  HVD_TRY_ASSIGN(pid_watch_, loop_.watch(pidfd_.get(), EPOLLIN, [this](std::uint32_t) { on_exit(); }));
  for (Source* source : {&out_, &err_}) {
    HVD_TRY_ASSIGN(source->watch,
                   loop_.watch(source->fd.get(), EPOLLIN, [this, source](std::uint32_t) { on_readable(*source); }));
  }
  return {};
}

void RshProcess::write(std::string bytes) {
  if (!in_.is_open()) {
    return;
  }
  if (sent_ == queue_.size()) {
    queue_ = std::move(bytes);
    sent_ = 0;
  } else {
    queue_ += bytes;
  }
  flush();
}

void RshProcess::push(const AgentImage& image) {
  unowned_ = image.bytes;
  flush();
}

void RshProcess::close_input() {
  wants_end_of_input_ = true;
  flush();
}

void RshProcess::drop_input() {
  loop_.unwatch(in_watch_);
  in_watch_ = 0;
  in_.reset();
}

bool RshProcess::flush() {
  bool took_any = false;
  while (in_.is_open()) {
    const std::string_view next = unowned_.empty() ? std::string_view(queue_).substr(sent_) : unowned_;
    if (next.empty()) {
      queue_ = {};  // with its memory: there are many of us
      sent_ = 0;
      loop_.unwatch(in_watch_);
      in_watch_ = 0;
      if (wants_end_of_input_) {
        drop_input();
      }
      return took_any;
    }
    const ssize_t taken = ::write(in_.get(), next.data(), next.size());
    if (taken > 0) {
      took_any = true;
      if (unowned_.empty()) {
        sent_ += static_cast<std::size_t>(taken);
      } else {
        unowned_.remove_prefix(static_cast<std::size_t>(taken));
      }
    } else if (errno == EAGAIN && in_watch_ == 0) {
      auto watch = loop_.watch(in_.get(), EPOLLOUT, [this](std::uint32_t) {
        if (flush()) {
          handlers_.on_taken();
        }
      });
      HVD_CHECK(watch.ok());
      in_watch_ = watch.value();
      return took_any;
    } else if (errno == EAGAIN) {
      return took_any;
    } else if (errno != EINTR) {
      drop_input();  // why it takes no more stands in what it says, or in how it ends
    }
  }
  return took_any;
}

void RshProcess::on_readable(Source& source) {
  std::array<char, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  const std::shared_ptr<bool> alive = alive_;
  for (std::size_t total = 0; total < kTurnBytes;) {
    const ssize_t got = ::read(source.fd.get(), buffer.data(), buffer.size());
    if (got > 0) {
      const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
      total += text.size();
      if (&source == &out_) {
        const auto on_output = handlers_.on_output;  // a copy: it may destroy us
        on_output(as_bytes(text));
      } else {
        handlers_.on_errors(text);
      }
      if (!*alive) {
        return;
      }
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else if (got == 0 || errno != EINTR) {
      close(source);
      finish_if_over();
      return;
    }
  }
}

void RshProcess::close(Source& source) {
  loop_.unwatch(source.watch);
  source.watch = 0;
  source.fd.reset();
}

void RshProcess::on_exit() {
  loop_.unwatch(pid_watch_);
  pid_watch_ = 0;
  has_exited_ = true;
  drop_input();
  finish_if_over();
}

void RshProcess::tell_over(std::optional<ExitStatus> status) {
  const auto on_over = handlers_.on_over;  // a copy: it may destroy us
  on_over(status, status ? status->text() : "closed its output");
}

void RshProcess::finish_if_over() {
  loop_.cancel(end_timer_);
  end_timer_ = 0;
  const bool is_read = !out_.fd.is_open() && !err_.fd.is_open();
  if (has_exited_ && is_read) {
    ::kill(-pid_, SIGKILL);  // what it left of itself; the number is its own until it is reaped
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    tell_over(ExitStatus::from_wait(status));
  } else if (has_exited_) {
    // Its output is somebody's who must get to the end of their work: an agent whose wrapper or guardian was killed.
    end_timer_ = loop_.after(out_.fd.is_open() ? patience_ : Duration(kDrainTime), [this] {
      close(out_);
      close(err_);
      finish_if_over();
    });
  } else if (!out_.fd.is_open()) {
    end_timer_ = loop_.after(kEndTime, [this] { tell_over(std::nullopt); });
  }
}

}  // namespace hvd::launch
