#include "launcher/agent/rank_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace hvd::launch {
namespace {

constexpr std::size_t kReadBytes = 64U << 10U;
// Per pipe and turn of the loop, so that one noisy rank cannot starve exits and frames.
constexpr std::size_t kTurnBytes = 256U << 10U;
// How long a grandchild may hold the pipes of a rank that has ended.
constexpr auto kDrainTime = std::chrono::seconds(2);
constexpr StreamId kStreams[] = {StreamId::kStdout, StreamId::kStderr};

// What stands in a pipe now: all that a rank that has ended has written. A rank may have made the pipe far larger than
// a turn (F_SETPIPE_SZ); who still writes to it does so without end.
std::size_t bytes_in(int pipe) {
  int count = 0;
  return ::ioctl(pipe, FIONREAD, &count) == 0 && count > 0 ? static_cast<std::size_t>(count) : 0;
}

}  // namespace

Result<std::unique_ptr<RankProcess>> RankProcess::start(EventLoop& loop, int rank, SpawnOptions options, Sink sink) {
  HVD_TRY_ASSIGN(Pipe out, make_pipe());
  HVD_TRY_ASSIGN(Pipe err, make_pipe());
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  std::unique_ptr<RankProcess> process(new RankProcess(loop, rank, std::move(sink)));
  HVD_TRY_ASSIGN(process->pid_, spawn(options));
  for (auto&& [stream, fd] :
       {std::pair(StreamId::kStdout, &out.read_end), std::pair(StreamId::kStderr, &err.read_end)}) {
    if (auto watched = process->watch_pipe(stream, std::move(*fd)); !watched.ok()) {
      process->signal_group(SIGKILL);
      return watched.error();
    }
  }
  return process;
}

RankProcess::RankProcess(EventLoop& loop, int rank, Sink sink) : loop_(loop), rank_(rank), sink_(std::move(sink)) {}

RankProcess::~RankProcess() {
  loop_.cancel(drain_timer_);
  for (const OutputPipe& pipe : pipes_) {
    loop_.unwatch(pipe.watch);
  }
}

Result<void> RankProcess::watch_pipe(StreamId stream, Fd read_end) {
  HVD_TRY(set_nonblocking(read_end.get()));
  OutputPipe& pipe = pipe_of(stream);
  pipe.fd = std::move(read_end);
  HVD_TRY_ASSIGN(pipe.watch, loop_.watch(pipe.fd.get(), EPOLLIN,
                                         [this, stream](std::uint32_t) { on_readable(stream, kTurnBytes); }));
  return {};
}

void RankProcess::on_readable(StreamId stream, std::size_t budget) {
  OutputPipe& pipe = pipe_of(stream);
  std::array<char, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  while (budget > 0 && pipe.fd.is_open()) {
    const std::size_t allowed = std::min({sink_.allowance(), buffer.size(), budget});
    if (allowed == 0) {
      // The launcher has not written out what it was given. Unwatched rather than masked: a hung-up pipe reports
      // EPOLLHUP whatever the mask, and would spin the loop.
      loop_.unwatch(pipe.watch);
      pipe.watch = 0;
      pipe.is_paused = true;
      return;
    }
    const ssize_t got = ::read(pipe.fd.get(), buffer.data(), allowed);
    if (got > 0) {
      budget -= static_cast<std::size_t>(got);
      sink_.on_output(rank_, stream, std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else if (got == 0 || errno != EINTR) {
      close_pipe(stream);
      return;
    }
  }
}

void RankProcess::resume() {
  for (const StreamId stream : kStreams) {
    OutputPipe& pipe = pipe_of(stream);
    if (pipe.is_paused) {
      pipe.is_paused = false;
      auto watch =
          loop_.watch(pipe.fd.get(), EPOLLIN, [this, stream](std::uint32_t) { on_readable(stream, kTurnBytes); });
      HVD_CHECK(watch.ok());
      pipe.watch = watch.value();
    }
  }
}

void RankProcess::close_pipe(StreamId stream) {
  OutputPipe& pipe = pipe_of(stream);
  loop_.unwatch(pipe.watch);
  pipe = OutputPipe();
  sink_.on_output_end(rank_, stream);
}

void RankProcess::mark_exited(ExitStatus status) {
  exited_ = status;
  // What it wrote before it ended comes before the news of its end, so that a report has its last lines.
  for (const StreamId stream : kStreams) {
    if (is_open(stream) && !pipe_of(stream).is_paused) {
      read_rest(stream);
    }
  }
  if (!is_finished()) {
    drain_timer_ = loop_.after(kDrainTime, [this] { end_drain(); });
  }
}

void RankProcess::read_rest(StreamId stream) {
  on_readable(stream, std::max(kTurnBytes, bytes_in(pipe_of(stream).fd.get())));
}

void RankProcess::end_drain() {
  drain_timer_ = 0;
  for (const StreamId stream : kStreams) {
    if (!is_open(stream)) {
      continue;
    }
    if (!pipe_of(stream).is_paused) {
      read_rest(stream);  // the last words
    }
    if (is_open(stream) && pipe_of(stream).is_paused) {
      // Unread for want of allowance, not of bytes: nothing may be dropped, so wait on.
      drain_timer_ = loop_.after(kDrainTime, [this] { end_drain(); });
    } else if (is_open(stream)) {
      close_pipe(stream);
    }
  }
}

void RankProcess::signal_group(int signo) const {
  if (pid_ > 0 && !has_exited()) {
    ::kill(-pid_, signo);
  }
}

}  // namespace hvd::launch
