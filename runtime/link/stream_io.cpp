#include "runtime/link/stream_io.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <span>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/io/socket.h"
#include "runtime/link/shm_segment.h"

namespace hvd {
namespace {

constexpr auto kInterruptEvery = std::chrono::milliseconds(100);

Error lost(const StreamPeer& peer, const std::string& why) {
  return Error(Code::kLostPeer, "lost the connection to " + peer.who + ": " + why);
}

Error out_of_step(const StreamPeer& from, const LinkSteps& steps) {
  return {Code::kProtocol, "the connection from " + from.who + " to " + from.here +
                               " is out of step: " + steps.what_came() +
                               "; the ranks do not agree on a size, or something else has written into it"};
}

// The error of the record says what was wrong with it.
Error not_sealed_so(const StreamPeer& from, const Error& why) {
  return {Code::kProtocol, "the encrypted connection from " + from.who + " to " + from.here +
                               " was changed on its way: " + why.message() +
                               "; somebody writes into the network between"};
}

using DataParts = std::array<iovec, Flow::kMostParts>;
using Parts = std::array<iovec, Flow::kMostParts + 2>;

msghdr message_of(Parts& parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return message;
}

// The outcome of a step in one direction: kSome: bytes were moved; kBlocked: there are bytes to move, but not now;
// kNone: there is nothing to move.
enum class Moved : std::uint8_t { kSome, kBlocked, kNone };

// Makes one system call at a time, so that received data is taken before more is sent.
Result<Moved> send_some(const StreamPeer& to, Flow& flow, LinkSteps& steps) {
  if (steps.is_over()) {
    return Moved::kNone;
  }
  DataParts data;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the flow
  Parts parts;     // NOLINT(cppcoreguidelines-pro-type-member-init): likewise
  const std::size_t count = steps.parts(data.data(), flow.to_send(data.data()), parts.data());
  if (count == 0) {
    return Moved::kNone;
  }
  const msghdr message = message_of(parts, count);
  const ssize_t sent = ::sendmsg(to.fd, &message, MSG_NOSIGNAL);
  if (sent > 0) {
    flow.note_sent(steps.note(static_cast<std::size_t>(sent)).value_or(0));
    return Moved::kSome;
  }
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    return lost(to, Error::from_errno("send").message());
  }
  return Moved::kBlocked;
}

// The same for an encrypted connection. The smallest unit is a record. The sender's data is no longer needed once it is
// sealed.
Result<Moved> send_sealed(const StreamPeer& to, Flow& flow, LinkSteps& steps) {
  SealedStream& stream = *to.sealed;
  if (stream.unsent().empty()) {
    if (steps.is_over()) {
      return Moved::kNone;
    }
    DataParts data;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the flow
    Parts parts;     // NOLINT(cppcoreguidelines-pro-type-member-init): likewise
    const std::size_t count = steps.parts(data.data(), flow.to_send(data.data()), parts.data());
    if (count == 0) {
      return Moved::kNone;
    }
    HVD_TRY_ASSIGN(const std::size_t sealed, stream.seal(std::span(parts).first(count)));
    flow.note_sent(steps.note(sealed).value_or(0));
  }
  const Bytes wire = stream.unsent();
  const ssize_t sent = ::send(to.fd, wire.data(), wire.size(), MSG_NOSIGNAL);
  if (sent > 0) {
    stream.note_sent(static_cast<std::size_t>(sent));
    return Moved::kSome;
  }
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    return lost(to, Error::from_errno("send").message());
  }
  return Moved::kBlocked;
}

// Accounts for bytes that have come to the places that the steps and the flow had given.
Result<Moved> note_received(const StreamPeer& from, Flow& flow, LinkSteps& steps, std::size_t bytes) {
  const auto received = steps.note(bytes);
  if (!received) {
    return out_of_step(from, steps);
  }
  if (*received > 0) {
    flow.note_received(*received);
  }
  return Moved::kSome;
}

// Explains a receiving call that brought no bytes: the connection has ended, or nothing has come yet.
Result<Moved> nothing_received(const StreamPeer& from, ssize_t got) {
  if (got == 0) {
    return lost(from, "it was closed at the other end");
  }
  if (errno != EAGAIN && errno != EINTR) {
    return lost(from, Error::from_errno("recv").message());
  }
  return Moved::kBlocked;
}

// Receives until a record is whole and proven, so that there is text to take.
Result<Moved> open_some(const StreamPeer& from) {
  SealedStream& stream = *from.sealed;
  while (stream.text().empty()) {
    const auto is_open = stream.open_next();
    if (!is_open.ok()) {
      return not_sealed_so(from, is_open.error());
    }
    if (is_open.value()) {
      break;
    }
    const MutableBytes room = stream.room();
    const ssize_t got = ::recv(from.fd, room.data(), room.size(), 0);
    if (got <= 0) {
      return nothing_received(from, got);
    }
    stream.note_received(static_cast<std::size_t>(got));
  }
  return Moved::kSome;
}

// Receives what has come, with at most one system call if the connection is not encrypted.
Result<Moved> recv_some(const StreamPeer& from, Flow& flow, LinkSteps& steps) {
  if (steps.is_over()) {
    return Moved::kNone;
  }
  DataParts data;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the flow
  Parts parts;     // NOLINT(cppcoreguidelines-pro-type-member-init): likewise
  const std::size_t count = steps.parts(data.data(), flow.to_receive(data.data()), parts.data());
  if (count == 0) {
    return Moved::kNone;
  }
  if (from.sealed != nullptr) {
    HVD_TRY_ASSIGN(const Moved opened, open_some(from));
    return opened == Moved::kSome ? note_received(from, flow, steps, from.sealed->take(std::span(parts).first(count)))
                                  : Result<Moved>(opened);
  }
  msghdr message = message_of(parts, count);
  const ssize_t got = ::recvmsg(from.fd, &message, 0);
  return got > 0 ? note_received(from, flow, steps, static_cast<std::size_t>(got)) : nothing_received(from, got);
}

// Sleeps until one of the two connections is ready, or it is time to ask the Interrupt.
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

// Gives up on a host that does not answer. The kernel would try for a quarter of an hour.
Result<void> check_answers(const StreamPeer& peer) {
  if (is_unanswered(peer.fd)) {
    return lost(peer, "it has answered nothing for 14 s; its host or the network between is down");
  }
  return {};
}

// A connection often ends because the job does. Then the job's end is the cause to report, not the connection.
Error prefer_cause(const Error& error, Interrupt& interrupt) {
  if (error.code() == Code::kLostPeer) {
    if (auto cause = interrupt.check(); !cause.ok()) {
      return cause.error();
    }
  }
  return error;
}

// Plain is the flow that sends all of one range and fills all of another.
class Plain final : public Flow {
 public:
  Plain(Bytes out, MutableBytes in) : out_(out), in_(in) {}
  [[nodiscard]] std::uint64_t bytes_to_send() const override { return out_.size(); }
  [[nodiscard]] std::uint64_t bytes_to_receive() const override { return in_.size(); }
  std::size_t to_send(iovec* parts) override {
    return fill(parts, const_cast<std::uint8_t*>(out_.data()), out_.size());
  }
  void note_sent(std::size_t bytes) override { out_ = out_.subspan(bytes); }
  std::size_t to_receive(iovec* parts) override { return fill(parts, in_.data(), in_.size()); }
  void note_received(std::size_t bytes) override { in_ = in_.subspan(bytes); }

 private:
  static std::size_t fill(iovec* parts, std::uint8_t* data, std::size_t bytes) {
    *parts = iovec{data, bytes};
    return bytes == 0 ? 0 : 1;
  }

  Bytes out_;
  MutableBytes in_;
};

bool has_core_to_spare() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1;
}

}  // namespace

Looks looks_beside(const ShmSegment* node) {
  const bool may_look = node == nullptr ? has_core_to_spare() : node->spins() > 0;
  return Looks(may_look ? Looks::kMost : 0);
}

Result<void> move(const StreamPeer& to, const StreamPeer& from, Flow& flow, Looks& looks, Interrupt& interrupt) {
  Deadline next_check = Deadline::after(kInterruptEvery);
  LinkCounts none;  // a side that has nothing to move has no connection
  const std::uint64_t out = flow.bytes_to_send();
  const std::uint64_t in = flow.bytes_to_receive();
  HVD_CHECK((out == 0 || to.counts != nullptr) && (in == 0 || from.counts != nullptr));
  LinkSteps sending((out == 0 ? none : *to.counts).sent, out, true);
  LinkSteps receiving((in == 0 ? none : *from.counts).received, in, false);
  for (int in_vain = 0;;) {
    const auto sent = to.sealed == nullptr ? send_some(to, flow, sending) : send_sealed(to, flow, sending);
    if (!sent.ok()) {
      return prefer_cause(sent.error(), interrupt);
    }
    const auto received = recv_some(from, flow, receiving);
    if (!received.ok()) {
      return prefer_cause(received.error(), interrupt);
    }
    const bool has_moved = sent.value() == Moved::kSome || received.value() == Moved::kSome;
    if (sent.value() == Moved::kNone && received.value() == Moved::kNone) {
      return {};
    }
    if (has_moved) {
      in_vain = 0;
    } else if (!looks.has_more(++in_vain)) {
      in_vain = 0;
      interrupt.note_sleep();
      const TimePoint began = SteadyClock().now();
      HVD_TRY(
          wait_for_either(to, sent.value() == Moved::kBlocked, from, received.value() == Moved::kBlocked, next_check));
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
  return out.empty() && in.empty() ? Result<void>() : move(to, from, plain, looks, interrupt);
}

}  // namespace hvd
