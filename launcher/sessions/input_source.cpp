#include "launcher/sessions/input_source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace hvd::launch {
namespace {

constexpr std::size_t kReadBytes = 64U << 10U;
// The kernel sends no event when a shell moves a background process to the foreground, so this has to be polled.
constexpr auto kLookAgain = std::chrono::seconds(1);

bool is_kind(int fd, mode_t kind) {
  struct stat info{};
  return ::fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

// Opens the file again, because O_NONBLOCK on a shared file description would also apply to other processes, such as a
// shell. Without O_NONBLOCK a read could block: another reader may take the bytes that poll announced to us.
Fd open_anew(int fd) {
  if (!is_kind(fd, S_IFIFO) && ::isatty(fd) != 1) {
    return {};
  }
  return Fd(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

InputSource::InputSource(EventLoop& loop, Fd fd, Sink sink)
    : loop_(loop),
      sink_(std::move(sink)),
      is_terminal_(::isatty(fd.get()) == 1),
      is_socket_(is_kind(fd.get(), S_IFSOCK)),
      fd_(std::move(fd)),
      own_(open_anew(fd_.get())),
      scope_(loop) {}

InputSource::~InputSource() {
  pause();
}

bool InputSource::is_elsewhere() const {
  const pid_t front = is_terminal_ ? ::tcgetpgrp(fd_.get()) : -1;  // -1 also when it is not our controlling terminal
  return front >= 0 && front != ::getpgrp();
}

void InputSource::resume() {
  pause();
  if (!fd_.is_open() || sink_.allowance() == 0) {
    return;
  }
  if (is_elsewhere()) {
    look_later();
  } else {
    wait();
  }
}

void InputSource::look_later() {
  timer_ = loop_.after(kLookAgain, [this] {
    timer_ = 0;
    resume();
  });
}

void InputSource::wait() {
  auto watch = loop_.watch(fd_.get(), EPOLLIN, [this](std::uint32_t) { read(); });
  if (watch.ok()) {
    watch_ = watch.value();
    return;
  }
  if (is_posted_) {
    return;
  }
  is_posted_ = true;
  scope_.post([this] {
    is_posted_ = false;
    read();
  });
}

void InputSource::pause() {
  loop_.cancel(timer_);
  timer_ = 0;
  loop_.unwatch(watch_);
  watch_ = 0;
}

void InputSource::read() {
  const std::size_t allowed = fd_.is_open() ? std::min(sink_.allowance(), kReadBytes) : 0;
  if (allowed == 0 || is_elsewhere()) {
    return resume();
  }
  std::array<char, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  const ssize_t got = read_some(buffer.data(), allowed);
  if (got > 0) {
    sink_.on_bytes(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    if (watch_ == 0 || sink_.allowance() == 0) {
      resume();
    }
  } else if (got < 0 && (errno == EINTR || errno == EAGAIN || (errno == EIO && is_elsewhere()))) {
    resume();
  } else {
    finish();
  }
}

long InputSource::read_some(char* into, std::size_t size) const {
  if (is_socket_) {
    return ::recv(fd_.get(), into, size, MSG_DONTWAIT);
  }
  return ::read(own_.is_open() ? own_.get() : fd_.get(), into, size);
}

void InputSource::finish() {
  pause();
  own_.reset();
  fd_.reset();                       // a writer that still holds the other end learns that nobody reads any more
  const auto on_end = sink_.on_end;  // a copy, since the call may destroy this object
  on_end();
}

}  // namespace hvd::launch
