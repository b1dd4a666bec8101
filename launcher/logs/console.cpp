#include "launcher/logs/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <limits.h>

namespace hvd::launch {
namespace {

// Limits one write, so that a fast disk cannot keep the loop from its other work.
constexpr std::size_t kWriteBytes = 256U << 10U;

}  // namespace

ConsoleStream::ConsoleStream(EventLoop& loop, int fd, std::string name, Sink sink)
    : loop_(loop), fd_(fd), name_(std::move(name)), sink_(std::move(sink)) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    has_failed_ = true;  // the descriptor is closed: nobody wants the output
    return;
  }
  is_socket_ = S_ISSOCK(info.st_mode);
  is_pipe_ = S_ISFIFO(info.st_mode);
  is_terminal_ = ::isatty(fd) == 1;
  if (is_pipe_ || is_terminal_) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    reopened_ = Fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
  // A regular file takes everything at once. Opening it again would give a second file offset, and two writers that
  // overwrite each other.
  never_blocks_ = reopened_.is_open() || S_ISREG(info.st_mode);
}

ConsoleStream::~ConsoleStream() {
  loop_.unwatch(watch_);
}

void ConsoleStream::write(std::string_view bytes) {
  if (has_failed_) {
    return;
  }
  if (pending() == 0) {
    queue_.clear();
    sent_ = 0;
  }
  erase_below();
  queue_.append(bytes);
  is_amid_line_ = bytes.empty() ? is_amid_line_ : bytes.back() != '\n';
}

void ConsoleStream::show_below(std::vector<std::string> rows) {
  if (is_terminal_ && !has_failed_ && rows != below_) {
    below_ = std::move(rows);
    erase_below();
  }
}

void ConsoleStream::erase_below() {
  if (drawn_ > 0) {
    queue_.append(erase_rows(std::exchange(drawn_, 0)));
  }
}

void ConsoleStream::draw_below() {
  if (drawn_ == 0 && !below_.empty() && !is_amid_line_ && !has_failed_) {
    const std::vector<std::string> rows = fit_rows(below_, size());
    queue_.append(draw_rows(rows));
    drawn_ = rows.size();
  }
}

TerminalSize ConsoleStream::size() const {
  winsize window{};
  const bool is_known = ::ioctl(fd_, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0;
  return is_known ? TerminalSize{window.ws_col, window.ws_row} : TerminalSize{};
}

bool ConsoleStream::write_some() {
  const char* data = queue_.data() + sent_;
  std::size_t size = std::min(pending(), kWriteBytes);
  const int fd = reopened_.is_open() ? reopened_.get() : fd_;
  if (!never_blocks_ && !is_socket_) {
    // The pipe or terminal is shared, so it stays blocking: a write of at most PIPE_BUF bytes does not block once poll
    // says writable.
    pollfd p{fd, POLLOUT, 0};
    if (::poll(&p, 1, 0) <= 0) {
      return false;
    }
    size = std::min(size, std::size_t{PIPE_BUF});
  }
  const ssize_t sent = is_socket_ ? ::send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) : ::write(fd, data, size);
  if (sent >= 0) {
    sent_ += static_cast<std::size_t>(sent);
    return true;
  }
  if (errno == EINTR) {
    return true;
  }
  if (errno != EAGAIN) {
    fail(Error::from_errno("cannot write to " + name_));
  }
  return false;
}

void ConsoleStream::flush() {
  if (watch_ != 0) {
    return;  // the kernel took no more, and will signal when it does
  }
  draw_below();
  const bool had_some = pending() > 0;
  while (pending() > 0 && write_some()) {
  }
  if (pending() > 0 && !has_failed_) {
    watch_writable();
  } else if (had_some) {
    sink_.on_drained();
  }
}

void ConsoleStream::watch_writable() {
  const int fd = reopened_.is_open() ? reopened_.get() : fd_;
  auto watch = loop_.watch(fd, EPOLLOUT, [this](std::uint32_t) {
    loop_.unwatch(watch_);
    watch_ = 0;
    // Erase the bytes that were written, so that a long queue does not keep their memory.
    queue_.erase(0, sent_);
    sent_ = 0;
    flush();
  });
  if (watch.ok()) {
    watch_ = watch.value();
  }
}

void ConsoleStream::fail(const Error& why) {
  has_failed_ = true;
  failure_ = why;
  queue_.clear();
  sent_ = 0;
  loop_.post([this, why] { sink_.on_failed(why); });
}

bool is_same_file(int fd_a, int fd_b) {
  struct stat a{};
  struct stat b{};
  return ::fstat(fd_a, &a) == 0 && ::fstat(fd_b, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
         a.st_rdev == b.st_rdev;
}

}  // namespace hvd::launch
