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

// One call at a time, so that what has come is taken before more is sent. True: something was.
Result<bool> send_some(const StreamPeer& to, Flow& flow) {
  const Bytes out = flow.to_send();
  if (out.empty()) {
    return false;
  }
  const ssize_t sent = ::send(to.fd, out.data(), out.size(), MSG_NOSIGNAL);
  if (sent > 0) {
    flow.note_sent(static_cast<std::size_t>(sent));
    return true;
  }
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    return lost(to, Error::from_errno("send").message());
  }
  return false;
}

// Likewise.
Result<bool> recv_some(const StreamPeer& from, Flow& flow) {
  const MutableBytes in = flow.to_receive();
  if (in.empty()) {
    return false;
  }
  const ssize_t got = ::recv(from.fd, in.data(), in.size(), 0);
  if (got > 0) {
    flow.note_received(static_cast<std::size_t>(got));
    return true;
  }
  if (got == 0) {
    return lost(from, "it was closed at the other end");
  }
  if (errno != EAGAIN && errno != EINTR) {
    return lost(from, Error::from_errno("recv").message());
  }
  return false;
}

// Until one of the two may go on, or it is time to ask the Interrupt.
Result<void> wait_for_either(const StreamPeer& to, bool is_sending, const StreamPeer& from, bool is_receiving,
                             Deadline next_check) {
  std::array<pollfd, 2> waits{};
  nfds_t count = 0;
  if (is_sending) {
    waits[count++] = pollfd{to.fd, POLLOUT, 0};
  }
  if (is_receiving) {
    waits[count++] = pollfd{from.fd, POLLIN, 0};
  }
  if (::poll(waits.data(), count, next_check.poll_ms()) < 0 && errno != EINTR) {
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
Error prefer_cause(const Error& error, Interrupt& interrupt) {
  if (error.code() == Code::kLostPeer) {
    if (auto cause = interrupt.check(); !cause.ok()) {
      return cause.error();
    }
  }
  return error;
}

// All of one range out, all of another in.
class Plain final : public Flow {
 public:
  Plain(Bytes out, MutableBytes in) : out_(out), in_(in) {}
  Bytes to_send() override { return out_; }
  void note_sent(std::size_t bytes) override { out_ = out_.subspan(bytes); }
  MutableBytes to_receive() override { return in_; }
  void note_received(std::size_t bytes) override { in_ = in_.subspan(bytes); }

 private:
  Bytes out_;
  MutableBytes in_;
};

}  // namespace

Result<void> move(const StreamPeer& to, const StreamPeer& from, Flow& flow, Looks& looks, Interrupt& interrupt) {
  Deadline next_check = Deadline::after(kInterruptEvery);
  for (int in_vain = 0;;) {
    const auto sent = send_some(to, flow);
    if (!sent.ok()) {
      return prefer_cause(sent.error(), interrupt);
    }
    const auto received = recv_some(from, flow);
    if (!received.ok()) {
      return prefer_cause(received.error(), interrupt);
    }
    const bool is_sending = !flow.to_send().empty();
    const bool is_receiving = !flow.to_receive().empty();
    if (!is_sending && !is_receiving) {
      return {};
    }
    if (sent.value() || received.value()) {
      in_vain = 0;
    } else if (!looks.has_more(++in_vain)) {
      in_vain = 0;
      interrupt.note_sleep();
      const TimePoint began = SteadyClock().now();
      HVD_TRY(wait_for_either(to, is_sending, from, is_receiving, next_check));
      looks.note_sleep(SteadyClock().now() - began);
    }
    if (next_check.has_passed()) {
      HVD_TRY(interrupt.check());
      HVD_TRY(check_answers(to));
      HVD_TRY(check_answers(from));
      next_check = Deadline::after(kInterruptEvery);
    }
  }
}

Result<void> send_and_recv(const StreamPeer& to, Bytes out, const StreamPeer& from, MutableBytes in, Looks& looks,
                           Interrupt& interrupt) {
  Plain plain(out, in);
  return plain.to_send().empty() && plain.to_receive().empty() ? Result<void>()
                                                               : move(to, from, plain, looks, interrupt);
}

}  // namespace hvd
