#include "launcher/transport/tcp_dial.h"

#include <errno.h>

#include <utility>

namespace hvd::launch {

TcpDial::TcpDial(EventLoop& loop, std::vector<SocketAddress> addresses, Done done)
    : loop_(loop), addresses_(std::move(addresses)), done_(std::move(done)) {
  HVD_CHECK(!addresses_.empty());
}

TcpDial::~TcpDial() {
  loop_.cancel(starter_);
  loop_.unwatch(watch_);
}

void TcpDial::start() {
  starter_ = loop_.after(Duration::zero(), [this] { try_next(); });
}

void TcpDial::try_next() {
  for (;;) {
    const Result<void> begun = begin();
    if (begun.ok()) {
      return;
    }
    if (at_ + 1 == addresses_.size()) {
      finish(begun.error());
      return;
    }
    ++at_;
  }
}

Result<void> TcpDial::begin() {
  const SocketAddress& address = current();
  fd_ = Fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_.is_open()) {
    return Error::from_errno("socket");
  }
  if (::connect(fd_.get(), address.raw(), address.raw_size()) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Error::from_errno("connect");
  }
  HVD_TRY_ASSIGN(watch_, loop_.watch(fd_.get(), EPOLLOUT, [this](std::uint32_t) { on_writable(); }));
  return {};
}

void TcpDial::on_writable() {
  loop_.unwatch(watch_);
  watch_ = 0;
  int failed = 0;
  socklen_t size = sizeof failed;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0) {
    failed = errno;
  }
  if (failed == 0) {
    finish(std::move(fd_));
  } else if (at_ + 1 == addresses_.size()) {
    finish(Error::from_errno("connect", failed));
  } else {
    ++at_;
    try_next();
  }
}

void TcpDial::finish(Result<Fd> result) {
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

}  // namespace hvd::launch
