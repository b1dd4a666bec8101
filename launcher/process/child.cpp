#include "launcher/process/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "launcher/process/other_process.h"

namespace hvd::launch {
namespace {

// A killed process has this time to be gone. One in a hung system call is left.
constexpr Duration kReapTime = std::chrono::seconds(2);

std::size_t index_of(Child::Stream stream) {
  return static_cast<std::size_t>(stream);
}

// Returns what a stream's reader tells the owner of the Child.
PipeReader::Handlers handlers_for(Child::Stream stream, const std::shared_ptr<const Child::Handlers>& told,
                                  std::function<void()> on_end) {
  PipeReader::Handlers handlers;
  handlers.allowance = told->allowance;
  handlers.on_bytes = [told, stream](std::string_view bytes) { told->on_output(stream, bytes); };
  handlers.on_end = std::move(on_end);
  return handlers;
}

}  // namespace

Result<std::unique_ptr<Child>> Child::start(EventLoop& loop, SpawnOptions program, const Options& options,
                                            Handlers handlers) {
  std::unique_ptr<Child> child(new Child(loop, options, std::move(handlers)));
  HVD_TRY(child->spawn_with_pipes(std::move(program)));
  if (!options.is_reaped_elsewhere) {
    if (const auto watched = child->watch_exit(); !watched.ok()) {
      child->signal(SIGKILL);
      child->reap();
      return watched.error();
    }
  }
  return child;
}

Result<std::unique_ptr<Child>> Child::adopt(EventLoop& loop, pid_t pid, Fd output, Handlers handlers) {
  Options options;
  options.is_reaped_elsewhere = true;
  std::unique_ptr<Child> child(new Child(loop, options, std::move(handlers)));
  child->pid_ = pid;
  child->leads_group_ = false;
  child->end_signal_ = SIGKILL;
  HVD_TRY(set_nonblocking(output.get()));
  HVD_TRY(child->readers_[index_of(Stream::kOutput)].open(std::move(output)));
  return child;
}

Child::Child(EventLoop& loop, const Options& options, Handlers handlers)
    : loop_(loop),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      options_(options),
      readers_{PipeReader(loop, handlers_for(Stream::kOutput, handlers_, [this] { on_stream_end(Stream::kOutput); })),
               PipeReader(loop, handlers_for(Stream::kErrors, handlers_, [this] { on_stream_end(Stream::kErrors); }))},
      in_(loop,
          [this] {
            if (const auto told = handlers_; told->on_taken) {
              told->on_taken();
            }
          }),
      scope_(loop) {}

Child::~Child() {
  forget();
  loop_.cancel(kill_timer_);
  loop_.unwatch(pid_watch_);
  if (is_reaped_ || pid_ <= 0) {
    return;
  }
  if (has_exited_) {  // and its output was still awaited
    reap();
    return;
  }
  if (end_signal_ != 0) {
    signal(end_signal_);
  }
  if (!options_.is_reaped_elsewhere) {
    await_exit(Deadline::after(end_signal_ == SIGKILL ? kReapTime : Duration::zero()));
  }
}

// It has pipes and no socket: a bash with a socket as its input believes that rshd started it, and reads ~/.bashrc. The
// pipes are watched before the process starts, so that a failure leaves nothing to end.
Result<void> Child::spawn_with_pipes(SpawnOptions program) {
  Pipe in;
  Fd theirs[2];
  if (options_.has_input) {
    HVD_TRY_ASSIGN(in, make_pipe());
    HVD_TRY(set_nonblocking(in.write_end.get()));
    program.stdin_fd = in.read_end.get();
    in_.open(std::move(in.write_end));
  }
  for (const Stream stream : {Stream::kOutput, Stream::kErrors}) {
    const bool is_output = stream == Stream::kOutput;
    if (is_output ? !options_.has_output : !options_.has_errors || options_.joins_errors) {
      continue;
    }
    HVD_TRY_ASSIGN(Pipe pipe, make_pipe());
    HVD_TRY(set_nonblocking(pipe.read_end.get()));
    HVD_TRY(readers_[index_of(stream)].open(std::move(pipe.read_end)));
    (is_output ? program.stdout_fd : program.stderr_fd) = pipe.write_end.get();
    theirs[is_output ? 0 : 1] = std::move(pipe.write_end);
  }
  if (options_.joins_errors) {
    program.stderr_fd = program.stdout_fd;
  }
  leads_group_ = program.new_session;
  HVD_TRY_ASSIGN(pid_, spawn(program));
  end_signal_ = program.dies_with_parent ? program.death_signal : 0;
  return {};
}

Result<void> Child::watch_exit() {
  HVD_TRY_ASSIGN(pidfd_, open_process(pid_));
  HVD_TRY_ASSIGN(pid_watch_, loop_.watch(pidfd_.get(), EPOLLIN, [this](std::uint32_t) { on_exit(); }));
  return {};
}

bool Child::is_open(Stream stream) const {
  return readers_[index_of(stream)].is_open();
}

// Reads all that the process itself has written, as far as the reader allows.
void Child::read_rest() {
  const auto life = scope_.life();
  for (PipeReader& reader : readers_) {
    if (!life.expired()) {
      reader.read_rest();
    }
  }
}

void Child::resume() {
  for (PipeReader& reader : readers_) {
    reader.resume();
  }
}

void Child::close(Stream stream) {
  readers_[index_of(stream)].close();
}

void Child::on_stream_end(Stream stream) {
  const auto life = scope_.life();
  if (const auto told = handlers_; told->on_output_end) {
    told->on_output_end(stream);
  }
  if (!life.expired()) {
    settle();
  }
}

void Child::mark_exited(const ExitStatus& status) {
  status_ = status;
  is_reaped_ = true;
  on_exit();
}

void Child::on_exit() {
  loop_.unwatch(std::exchange(pid_watch_, 0));
  loop_.cancel(std::exchange(kill_timer_, 0));
  has_exited_ = true;
  in_.drop();
  if (is_over_) {
    return reap();
  }
  const auto life = scope_.life();
  read_rest();
  if (!life.expired()) {
    settle();
  }
}

void Child::set_drains(Duration output, Duration errors) {
  options_.output_drain = output;
  options_.errors_drain = errors;
  if (over_timer_ != 0 && has_exited_) {
    settle();
  }
}

// Reports the end when nothing more can come, or sets the time after which it is reported.
void Child::settle() {
  loop_.cancel(std::exchange(over_timer_, 0));
  if (is_over_) {
    return;
  }
  if (is_finished()) {
    reap();
    tell_over();
  } else if (has_exited_) {
    over_timer_ =
        loop_.after(is_open(Stream::kOutput) ? options_.output_drain : options_.errors_drain, [this] { end_drain(); });
  } else if (options_.end_time && !is_open(Stream::kOutput)) {
    over_timer_ = loop_.after(*options_.end_time, [this] { tell_over(); });
  }
}

// Processes that still hold the pipes are not waited for any longer. Bytes that the reader has not allowed yet are
// still awaited: they may be the last words of the process.
void Child::end_drain() {
  over_timer_ = 0;
  const auto life = scope_.life();
  read_rest();
  for (PipeReader& reader : readers_) {
    if (!life.expired() && reader.is_reading()) {
      reader.close();
    }
  }
  if (!life.expired() && over_timer_ == 0) {
    settle();
  }
}

void Child::reap() {
  if (is_reaped_ || options_.is_reaped_elsewhere) {
    return;
  }
  if (leads_group_ && end_signal_ != 0) {
    ::kill(-pid_, SIGKILL);  // what it left of itself; the number is its own until it is reaped
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  is_reaped_ = true;
  pidfd_ = Fd();  // its owner may live much longer, as a session of a host that an elastic job has given back does
  status_ = ExitStatus::from_wait(status);
}

void Child::tell_over() {
  const auto handlers = handlers_;
  const auto status = status_;  // a copy as well: the handler may destroy us, and read the status after that
  if (!std::exchange(is_over_, true) && handlers->on_over) {
    handlers->on_over(status, status ? status->text() : "closed its output");
  }
}

void Child::signal(int signo) const {
  siginfo_t info{};
  if (!is_reaped_ && pid_ > 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    ::kill(leads_group_ ? -pid_ : pid_, signo);
  }
}

void Child::forget() {
  is_over_ = true;
  loop_.cancel(std::exchange(over_timer_, 0));
  in_.drop();
  for (PipeReader& reader : readers_) {
    reader.drop();
  }
}

void Child::end(Duration patience) {
  forget();
  if (has_exited_) {
    reap();  // and end what it has left, whose output was still awaited
    return;
  }
  if (kill_timer_ != 0) {
    return;
  }
  signal(SIGTERM);
  kill_timer_ = loop_.after(patience, [this] { signal(SIGKILL); });
}

void Child::leave_to(StopLadder& ladder, Duration patience) {
  forget();
  loop_.unwatch(std::exchange(pid_watch_, 0));
  if (!std::exchange(is_reaped_, true)) {
    ladder.end(pid_, std::move(pidfd_), patience);
  }
}

bool Child::await_exit(Deadline deadline) {
  if (has_exited_) {
    return true;
  }
  pollfd ended{pidfd_.get(), POLLIN, 0};
  while (::poll(&ended, 1, deadline.poll_ms()) < 0 && errno == EINTR) {
  }
  const bool has_ended = (ended.revents & POLLIN) != 0;
  if (has_ended) {
    on_exit();  // may destroy us, as the other may
  } else {
    read_rest();
  }
  return has_ended;
}

}  // namespace hvd::launch
