#include "runtime/engine/turn_lock.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

namespace hvd {

Result<std::unique_ptr<TurnLock>> TurnLock::create() {
  Fd call_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!call_fd.is_open()) {
    return Error::from_errno("eventfd");
  }
  return std::unique_ptr<TurnLock>(new TurnLock(std::move(call_fd)));
}

void TurnLock::call() {
  if (!is_called_.exchange(true)) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(call_fd_.get(), &one, sizeof one);
  }
}

bool TurnLock::was_driven() {
  const std::uint64_t drives = drives_.load(std::memory_order_relaxed);
  return std::exchange(seen_, drives) != drives;
}

bool TurnLock::is_same_driver() {
  const std::uint64_t drives = drives_.load(std::memory_order_relaxed);
  return std::exchange(met_, drives) == drives;
}

void TurnLock::sleep(int fd, int timeout_ms) {
  std::array<pollfd, 2> waits{pollfd{call_fd_.get(), POLLIN, 0}, pollfd{fd, POLLIN, 0}};
  ::poll(waits.data(), waits.size(), timeout_ms);  // the outcome does not matter, since the caller looks again
  is_parked_.store(false);
  // Read the descriptor before the call counts as answered. A call that comes in between is answered by what the keeper
  // does next. In the other order, such a call would count as unanswered with nothing to read, and no later call would
  // be sent.
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(call_fd_.get(), &count, sizeof count);
  is_called_.exchange(false);
}

}  // namespace hvd
