#include "launcher/transport/tcp_dial.h"

#include <errno.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hvd::launch {
namespace {

std::string failure_words(int failure) {
  switch (failure) {
    case 0:
    case ETIMEDOUT:
      return "gave no answer";
    case ECONNREFUSED:
      return "refused";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "has no route";
    default:
      return "failed (" + Error::from_errno("connect", failure).message() + ")";
  }
}

}  // namespace

std::vector<SocketAddress> dialling_order(const std::vector<SocketAddress>& addresses) {
  std::array<std::vector<SocketAddress>, 2> kinds;  // the first one's kind, the other
  for (const SocketAddress& address : addresses) {
    auto& kind = kinds[address.family() == addresses.front().family() ? 0 : 1];
    const bool is_double = std::any_of(kind.begin(), kind.end(),
                                       [&](const SocketAddress& other) { return other.text() == address.text(); });
    if (!is_double) {
      kind.push_back(address);
    }
  }
  std::vector<SocketAddress> order;
  for (std::size_t i = 0; i < std::max(kinds[0].size(), kinds[1].size()); ++i) {
    for (const auto& kind : kinds) {
      if (i < kind.size()) {
        order.push_back(kind[i]);
      }
    }
  }
  return order;
}

TcpDial::TcpDial(EventLoop& loop, const std::vector<SocketAddress>& addresses, Done done)
    : loop_(loop), done_(std::move(done)) {
  HVD_CHECK(!addresses.empty());
  for (const SocketAddress& address : dialling_order(addresses)) {
    attempts_.emplace_back().address = address;
  }
}

TcpDial::~TcpDial() {
  hang_up();
}

void TcpDial::start() {
  pace_ = loop_.after(Duration::zero(), [this] { begin_next(); });
}

void TcpDial::begin_next() {
  pace_ = 0;
  current_ = next_++;
  if (const int failure = begin(current_); failure != 0) {
    return fail(current_, failure);
  }
  if (next_ < attempts_.size()) {
    pace_ = loop_.after(kPace, [this] { begin_next(); });
  }
}

int TcpDial::begin(std::size_t index) {
  Attempt& attempt = attempts_[index];
  attempt.stage = Stage::kTrying;
  attempt.fd = Fd(::socket(attempt.address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!attempt.fd.is_open()) {
    return errno;
  }
  if (::connect(attempt.fd.get(), attempt.address.raw(), attempt.address.raw_size()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return errno;
  }
  auto watch = loop_.watch(attempt.fd.get(), EPOLLOUT, [this, index](std::uint32_t) { on_writable(index); });
  if (!watch.ok()) {
    return watch.error().sys_errno();
  }
  attempt.watch = watch.value();
  return 0;
}

void TcpDial::on_writable(std::size_t index) {
  Attempt& attempt = attempts_[index];
  int failure = 0;
  socklen_t size = sizeof failure;
  if (::getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0) {
    failure = errno;
  }
  if (failure != 0) {
    return fail(index, failure);
  }
  loop_.unwatch(std::exchange(attempt.watch, 0));
  current_ = index;
  finish(std::move(attempt.fd));
}

void TcpDial::fail(std::size_t index, int failure) {
  Attempt& attempt = attempts_[index];
  loop_.unwatch(std::exchange(attempt.watch, 0));
  attempt.fd.reset();
  attempt.stage = Stage::kFailed;
  attempt.failure = failure;
  current_ = index;
  if (next_ < attempts_.size()) {
    loop_.cancel(pace_);
    return begin_next();
  }
  const bool is_over = std::all_of(attempts_.begin(), attempts_.end(),
                                   [](const Attempt& other) { return other.stage == Stage::kFailed; });
  if (is_over) {
    finish(Error::from_errno("connect", failure));
  }
}

void TcpDial::hang_up() {
  loop_.cancel(std::exchange(pace_, 0));
  for (Attempt& attempt : attempts_) {
    loop_.unwatch(std::exchange(attempt.watch, 0));
    attempt.fd.reset();
  }
}

void TcpDial::finish(Result<Fd> result) {
  hang_up();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

std::string TcpDial::words() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    text += (text.empty() ? "" : ", ") + attempt.address.ip() + " " +
            (attempt.stage == Stage::kToCome ? "was not tried yet" : failure_words(attempt.failure));
  }
  return text;
}

}  // namespace hvd::launch
