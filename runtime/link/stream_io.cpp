#include "runtime/link/stream_io.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "runtime/base/clock.h"
#include "runtime/base/socket.h"

namespace hvd {
namespace {

constexpr auto kInterruptEvery = std::chrono::milliseconds(100);

Error lost(const StreamPeer& peer, const std::string& why) {
  return Error(Code::kLostPeer, "lost the connection to " + peer.who + ": " + why);
}

// Sends what fits now.
Result<void> send_some(const StreamPeer& to, Bytes& out) {
  while (!out.empty()) {
    const ssize_t sent = ::send(to.fd, out.data(), out.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      out = out.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return lost(to, Error::from_errno("send").message());
    }
  }
  return {};
}

// Takes what is there now.
Result<void> recv_some(const StreamPeer& from, MutableBytes& in) {
  while (!in.empty()) {
    const ssize_t got = ::recv(from.fd, in.data(), in.size(), 0);
    if (got > 0) {
      in = in.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return lost(from, "it was closed at the other end");
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return lost(from, Error::from_errno("recv").message());
    }
  }
  return {};
}

// Until one of the two may go on, or it is time to ask the Interrupt.
Result<void> wait_for_either(const StreamPeer& to, bool is_sending, const StreamPeer& from, bool is_receiving) {
  std::array<pollfd, 2> waits{};
  nfds_t count = 0;
  if (is_sending) {
    waits[count++] = pollfd{to.fd, POLLOUT, 0};
  }
  if (is_receiving) {
    waits[count++] = pollfd{from.fd, POLLIN, 0};
  }
  if (::poll(waits.data(), count, static_cast<int>(kInterruptEvery.count())) < 0 && errno != EINTR) {
    return Error::from_errno("poll");
  }
  return {};
}

// The kernel would go on for a quarter of an hour.
Result<void> check_answers(const StreamPeer& peer) {
  if (is_unanswered(peer.fd)) {
    return lost(peer, "it has answered nothing for 14 s; its host or the network between is down");
  }
  return {};
}

// A connection often ends because the job does: then that is the cause to tell, not the connection.
Result<void> prefer_cause(Result<void> moved, Interrupt& interrupt) {
  if (!moved.ok() && moved.error().code() == Code::kLostPeer) {
    HVD_TRY(interrupt.check());
  }
  return moved;
}

}  // namespace

Result<void> send_and_recv(const StreamPeer& to, Bytes out, const StreamPeer& from, MutableBytes in,
                           Interrupt& interrupt) {
  Deadline next_check = Deadline::after(kInterruptEvery);
  for (;;) {
    HVD_TRY(prefer_cause(send_some(to, out), interrupt));
    HVD_TRY(prefer_cause(recv_some(from, in), interrupt));
    if (out.empty() && in.empty()) {
      return {};
    }
    interrupt.note_sleep();
    HVD_TRY(wait_for_either(to, !out.empty(), from, !in.empty()));
    if (next_check.has_passed()) {
      HVD_TRY(interrupt.check());
      HVD_TRY(check_answers(to));
      HVD_TRY(check_answers(from));
      next_check = Deadline::after(kInterruptEvery);
    }
  }
}

}  // namespace hvd
