#include "launcher/agent/relayed_command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kReadBytes = 64U << 10U;
// Per pipe and turn of the loop, so that one node cannot starve the others.
constexpr std::size_t kTurnBytes = 256U << 10U;
// What it left behind may hold its standard error (ssh's ControlPersist does); after this it is not waited for.
constexpr auto kDrainTime = std::chrono::seconds(1);
// Between the end of its output and its own.
constexpr auto kEndTime = std::chrono::seconds(2);
constexpr StreamId kStreams[] = {StreamId::kStdout, StreamId::kStderr};

}  // namespace

Result<std::unique_ptr<RelayedCommand>> RelayedCommand::start(EventLoop& loop, const std::vector<std::string>& argv,
                                                              const std::vector<std::string>& environment, Sink sink) {
  // Pipes, not a socket: a bash that finds one at its input takes itself for rshd's and reads ~/.bashrc.
  HVD_TRY_ASSIGN(Pipe in, make_pipe());
  HVD_TRY_ASSIGN(Pipe out, make_pipe());
  HVD_TRY_ASSIGN(Pipe err, make_pipe());
  HVD_TRY(set_nonblocking(in.write_end.get()));
  SpawnOptions options;
  options.argv = argv;
  options.environment = environment;
  options.stdin_fd = in.read_end.get();
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  options.death_signal = SIGTERM;  // an agent that it has become cleans up
  std::unique_ptr<RelayedCommand> command(new RelayedCommand(loop, std::move(sink)));
  command->in_ = std::move(in.write_end);
  command->pipe_of(StreamId::kStdout).fd = std::move(out.read_end);
  command->pipe_of(StreamId::kStderr).fd = std::move(err.read_end);
  for (const StreamId stream : kStreams) {
    HVD_TRY(set_nonblocking(command->pipe_of(stream).fd.get()));
    HVD_TRY(command->watch_pipe(stream));
  }
  HVD_TRY_ASSIGN(command->pid_, spawn(options));
  return command;
}

RelayedCommand::~RelayedCommand() {
  loop_.cancel(over_timer_);
  loop_.cancel(kill_timer_);
  loop_.unwatch(in_watch_);
  for (const OutputPipe& pipe : pipes_) {
    loop_.unwatch(pipe.watch);
  }
}

Result<void> RelayedCommand::watch_pipe(StreamId stream) {
  OutputPipe& pipe = pipe_of(stream);
  HVD_TRY_ASSIGN(pipe.watch,
                 loop_.watch(pipe.fd.get(), EPOLLIN, [this, stream](std::uint32_t) { on_readable(stream); }));
  return {};
}

void RelayedCommand::write(std::string_view bytes) {
  if (in_.is_open()) {
    queue_ += bytes;
    flush();
  }
}

void RelayedCommand::write_image() {
  image_ = Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  flush();  // where it cannot be read, the shell that waits for it sees too few bytes, and says so
}

void RelayedCommand::close_input() {
  wants_end_of_input_ = true;
  flush();
}

void RelayedCommand::flush() {
  while (in_.is_open()) {
    if (sent_ == queue_.size() && !refill()) {
      queue_ = {};  // with its memory: there are many of us
      sent_ = 0;
      loop_.unwatch(std::exchange(in_watch_, 0));
      if (wants_end_of_input_) {
        drop_input();
      }
      return;
    }
    const ssize_t taken = ::write(in_.get(), queue_.data() + sent_, queue_.size() - sent_);
    if (taken > 0) {
      sent_ += static_cast<std::size_t>(taken);
    } else if (errno == EAGAIN) {
      if (in_watch_ == 0) {
        auto watch = loop_.watch(in_.get(), EPOLLOUT, [this](std::uint32_t) { flush(); });
        HVD_CHECK(watch.ok());
        in_watch_ = watch.value();
      }
      return;
    } else if (errno != EINTR) {
      drop_input();  // why it takes no more stands in what it says, or in how it ends
    }
  }
}

// The next piece of the image; false: there is none.
bool RelayedCommand::refill() {
  sent_ = 0;
  queue_.resize(image_.is_open() ? kReadBytes : 0);
  if (queue_.empty()) {
    return false;
  }
  const ssize_t got = ::read(image_.get(), queue_.data(), queue_.size());
  queue_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (got <= 0) {
    image_.reset();
  }
  return got > 0;
}

void RelayedCommand::drop_input() {
  loop_.unwatch(std::exchange(in_watch_, 0));
  in_.reset();
  image_.reset();
}

void RelayedCommand::on_readable(StreamId stream) {
  OutputPipe& pipe = pipe_of(stream);
  std::array<char, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (std::size_t total = 0; total < kTurnBytes && pipe.fd.is_open();) {
    const std::size_t allowed = std::min<std::uint64_t>(credit_, buffer.size());
    if (allowed == 0) {
      // Unwatched rather than masked: a hung-up pipe reports EPOLLHUP whatever the mask, and would spin the loop.
      loop_.unwatch(std::exchange(pipe.watch, 0));
      pipe.is_paused = true;
      return;
    }
    const ssize_t got = ::read(pipe.fd.get(), buffer.data(), allowed);
    if (got > 0) {
      total += static_cast<std::size_t>(got);
      credit_ -= static_cast<std::size_t>(got);
      sink_.on_output(stream, std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else if (got == 0 || errno != EINTR) {
      close_pipe(stream);
      tell_if_over();
      return;
    }
  }
}

void RelayedCommand::grant(std::uint32_t bytes) {
  credit_ += bytes;
  for (const StreamId stream : kStreams) {
    OutputPipe& pipe = pipe_of(stream);
    if (std::exchange(pipe.is_paused, false)) {
      HVD_CHECK(watch_pipe(stream).ok());
    }
  }
}

void RelayedCommand::close_pipe(StreamId stream) {
  loop_.unwatch(pipe_of(stream).watch);
  pipe_of(stream) = OutputPipe();
}

void RelayedCommand::end(Duration patience) {
  is_over_ = true;
  loop_.cancel(std::exchange(over_timer_, 0));
  drop_input();
  for (const StreamId stream : kStreams) {
    close_pipe(stream);
  }
  if (has_exited() || kill_timer_ != 0) {
    return;
  }
  ::kill(-pid_, SIGTERM);
  kill_timer_ = loop_.after(patience, [this] {
    if (!has_exited()) {
      ::kill(-pid_, SIGKILL);
    }
  });
}

void RelayedCommand::mark_exited(const ExitStatus& status) {
  exited_ = status;
  drop_input();
  tell_if_over();
}

void RelayedCommand::tell_if_over() {
  loop_.cancel(std::exchange(over_timer_, 0));
  const bool is_read = !pipe_of(StreamId::kStdout).fd.is_open() && !pipe_of(StreamId::kStderr).fd.is_open();
  if (has_exited() && is_read) {
    tell_over(exited_->text());
  } else if (has_exited()) {
    over_timer_ = loop_.after(kDrainTime, [this] {
      over_timer_ = 0;
      for (const StreamId stream : kStreams) {
        // What is not read for want of credit may hold an agent's last words: it is waited for.
        if (!pipe_of(stream).is_paused) {
          close_pipe(stream);
        }
      }
      tell_if_over();
    });
  } else if (!pipe_of(StreamId::kStdout).fd.is_open()) {
    over_timer_ = loop_.after(kEndTime, [this] {
      over_timer_ = 0;
      tell_over("closed its output");
    });
  }
}

void RelayedCommand::tell_over(const std::string& how) {
  if (!std::exchange(is_over_, true)) {
    sink_.on_over(exited_, how);
  }
}

}  // namespace hvd::launch
