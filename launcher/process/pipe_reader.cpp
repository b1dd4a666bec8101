#include "launcher/process/pipe_reader.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hvd::launch {
namespace {

constexpr std::size_t kReadBytes = 64U << 10U;
// One turn of the loop reads at most so much per pipe, so that one noisy process cannot starve the others.
constexpr std::size_t kTurnBytes = 256U << 10U;

// Returns what stands in a pipe now, which is all that an ended process has written. The process may have made the pipe
// far larger than a turn (F_SETPIPE_SZ), and others that still write to it may never stop.
std::size_t bytes_in(int pipe) {
  int count = 0;
  return ::ioctl(pipe, FIONREAD, &count) == 0 && count > 0 ? static_cast<std::size_t>(count) : 0;
}

}  // namespace

Result<void> PipeReader::open(Fd fd) {
  fd_ = std::move(fd);
  return watch();
}

Result<void> PipeReader::watch() {
  HVD_TRY_ASSIGN(watch_, loop_.watch(fd_.get(), EPOLLIN, [this](std::uint32_t) { read(kTurnBytes); }));
  return {};
}

void PipeReader::read(std::size_t budget) {
  std::array<char, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  const auto life = scope_.life();
  const auto handlers = handlers_;
  while (budget > 0 && fd_.is_open()) {
    const std::size_t allowed =
        std::min({handlers->allowance ? handlers->allowance() : buffer.size(), buffer.size(), budget});
    if (allowed == 0) {
      // The pipe is unwatched rather than masked: a hung-up pipe reports EPOLLHUP whatever the mask, and would spin the
      // loop.
      loop_.unwatch(std::exchange(watch_, 0));
      is_paused_ = true;
      return;
    }
    const ssize_t got = ::read(fd_.get(), buffer.data(), allowed);
    if (got > 0) {
      budget -= static_cast<std::size_t>(got);
      handlers->on_bytes(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
      if (life.expired()) {
        return;
      }
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else if (got == 0 || errno != EINTR) {
      return close();
    }
  }
}

void PipeReader::read_rest() {
  if (is_reading()) {
    read(std::max(kTurnBytes, bytes_in(fd_.get())));
  }
}

void PipeReader::resume() {
  if (std::exchange(is_paused_, false)) {
    HVD_CHECK(watch().ok());
  }
}

void PipeReader::close() {
  if (!fd_.is_open()) {
    return;
  }
  const auto handlers = handlers_;
  drop();
  if (handlers->on_end) {
    handlers->on_end();
  }
}

void PipeReader::drop() {
  loop_.unwatch(std::exchange(watch_, 0));
  fd_.reset();
  is_paused_ = false;
}

}  // namespace hvd::launch
