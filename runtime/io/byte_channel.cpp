#include "runtime/io/byte_channel.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace hvd {
namespace {

// At most this much is read in one turn, so that a busy peer cannot starve the others.
constexpr std::size_t kTurnBytes = 512U << 10U;
constexpr std::size_t kReadBytes = 64U << 10U;

}  // namespace

Result<std::unique_ptr<ByteChannel>> ByteChannel::create(EventLoop& loop, Fd in, Fd out, Handlers handlers,
                                                         std::unique_ptr<ByteFilter> filter) {
  const bool is_socket = !out.is_open();
  HVD_TRY(set_nonblocking(in.get()));
  if (!is_socket) {
    HVD_TRY(set_nonblocking(out.get()));
  }
  std::unique_ptr<ByteChannel> channel(
      new ByteChannel(loop, std::move(in), std::move(out), is_socket, std::move(handlers), std::move(filter)));
  HVD_TRY(channel->start());
  return channel;
}

ByteChannel::ByteChannel(EventLoop& loop, Fd in, Fd out, bool is_socket, Handlers handlers,
                         std::unique_ptr<ByteFilter> filter)
    : loop_(loop),
      is_socket_(is_socket),
      handlers_(std::move(handlers)),
      filter_(std::move(filter)),
      in_(std::move(in)),
      out_(std::move(out)),
      scope_(loop) {}

ByteChannel::~ByteChannel() {
  loop_.unwatch(in_watch_);
  loop_.unwatch(out_watch_);
}

Result<void> ByteChannel::start() {
  HVD_TRY_ASSIGN(in_watch_, loop_.watch(in_.get(), EPOLLIN, [this](std::uint32_t events) { on_events(events); }));
  return {};
}

void ByteChannel::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    flush();
  }
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) {
    read_some();
  }
}

void ByteChannel::read_some() {
  std::array<std::uint8_t, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (std::size_t taken = 0; taken < kTurnBytes;) {
    const ssize_t got = ::read(in_.get(), buffer.data(), buffer.size());
    if (got > 0) {
      taken += static_cast<std::size_t>(got);
      if (!hand_out(Bytes(buffer.data(), static_cast<std::size_t>(got)))) {
        return;
      }
      if (static_cast<std::size_t>(got) < buffer.size()) {
        return;  // drained; if more has come, epoll reports it again
      }
    } else if (got == 0) {
      on_end_of_input();
      return;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      fail(Error::from_errno("read"));
      return;
    }
  }
}

void ByteChannel::on_end_of_input() {
  // After its end the input is looked at again only when the output has ended as well (EPOLLHUP).
  if (!handlers_.on_input_end || is_input_over_) {
    fail(Error(Code::kLostPeer, "the other end closed the connection"));
    return;
  }
  is_input_over_ = true;
  watch_output(pending() > 0);
  const auto on_input_end = handlers_.on_input_end;  // a copy, because the handler may destroy this object
  on_input_end();
}

bool ByteChannel::hand_out(Bytes bytes) {
  const auto life = scope_.life();
  if (!filter_) {
    handlers_.on_bytes(bytes);
    return !life.expired() && !has_ended_;
  }
  filter_->feed(bytes);
  for (;;) {
    const auto next = filter_->next();
    if (!next.ok()) {
      fail(next.error());
      return false;
    }
    if (!next.value()) {
      return true;
    }
    handlers_.on_bytes(*next.value());
    if (life.expired() || has_ended_) {
      return false;
    }
  }
}

void ByteChannel::write(std::string_view bytes) {
  if (has_ended_ || is_closing_output_) {
    return;
  }
  const bool was_idle = pending() == 0;
  if (was_idle) {
    queue_.clear();
    sent_ = 0;
  }
  if (!filter_) {
    queue_.append(bytes);
  } else if (const auto sealed = filter_->seal(bytes, queue_); !sealed.ok()) {
    fail_later(sealed.error());
    return;
  }
  if (was_idle) {
    flush();
  }
}

void ByteChannel::flush() {
  while (pending() > 0) {
    const ssize_t sent = ::write(out_fd(), queue_.data() + sent_, pending());
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      watch_output(true);
      // Free the memory of sent bytes before the queue has to grow.
      if (sent_ > (1U << 20U)) {
        queue_.erase(0, sent_);
        sent_ = 0;
      }
      return;
    } else if (errno != EINTR) {
      fail_later(Error::from_errno("write"));
      return;
    }
  }
  watch_output(false);
  if (is_closing_output_) {
    finish_output();
  }
}

void ByteChannel::watch_output(bool is_wanted) {
  if (is_socket_) {
    loop_.rewatch(in_watch_, (is_input_over_ ? 0U : EPOLLIN) | (is_wanted ? EPOLLOUT : 0U));
  } else if (!is_wanted) {
    loop_.unwatch(std::exchange(out_watch_, 0));
  } else if (out_watch_ == 0) {
    auto watch = loop_.watch(out_.get(), EPOLLOUT, [this](std::uint32_t) { flush(); });
    HVD_CHECK(watch.ok());
    out_watch_ = watch.value();
  }
}

void ByteChannel::fail_later(const Error& why) {
  // Report it from the loop, not from inside write(); data that the peer sent before is then read first.
  scope_.post([this, why] { fail(why); });
  queue_.clear();
  sent_ = 0;
  is_closing_output_ = true;
  watch_output(false);
}

void ByteChannel::close_output() {
  if (has_ended_ || is_closing_output_) {
    return;
  }
  is_closing_output_ = true;
  if (pending() == 0) {
    finish_output();
  }
}

void ByteChannel::finish_output() {
  if (is_socket_) {
    ::shutdown(in_.get(), SHUT_WR);
  } else {
    out_.reset();
  }
}

void ByteChannel::fail(const Error& why) {
  if (has_ended_) {
    return;
  }
  has_ended_ = true;
  loop_.unwatch(in_watch_);
  loop_.unwatch(out_watch_);
  in_watch_ = 0;
  out_watch_ = 0;
  const auto on_closed = handlers_.on_closed;  // a copy, because the handler may destroy this object
  on_closed(why);
}

}  // namespace hvd
