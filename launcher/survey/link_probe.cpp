#include "launcher/survey/link_probe.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {
namespace {

constexpr int kWarmUps = 4;
constexpr int kPings = 64;
constexpr Duration kPingTime = std::chrono::milliseconds(200);
// This share of the patience is for the connection alone: a firewall that drops packets would use all of it.
constexpr int kConnectShare = 2;
// So many callers may be connected without having said who they are. Then the oldest makes room.
constexpr std::size_t kMostVisitors = 128;
constexpr std::size_t kChunkBytes = 128U << 10U;

// The end that dials sends words of this size; a ping is answered as it came, and after kStream only bytes come.
constexpr std::size_t kWordBytes = 8;
using Word = std::array<std::uint8_t, kWordBytes>;
constexpr Word kPing = {'h', 'v', 'd', '-', 'p', 'i', 'n', 'g'};
constexpr Word kStream = {'h', 'v', 'd', '-', 'd', 'a', 't', 'a'};

ProbeResult begin(const ProbeRequest& request) {
  ProbeResult result;
  result.number = request.number;
  result.dialed = request.dials;
  return result;
}

ProbeResult failed(ProbeResult result, ProbeStage stage, const Error& why) {
  result.stage = stage;
  result.error = why.message();
  return result;
}

Deadline share_of(Deadline deadline, int share) {
  return Deadline::after((deadline.at() - std::chrono::steady_clock::now()) / share);
}

Result<void> ping(int fd, Deadline deadline) {
  Word answer{};
  HVD_TRY(send_all(fd, kPing, deadline));
  HVD_TRY(recv_exact(fd, answer, deadline));
  if (answer != kPing) {
    return Error(Code::kProtocol, "the other end speaks otherwise than an agent");
  }
  return {};
}

Result<Duration> measure_round_trip(int fd, Deadline deadline) {
  std::vector<Duration> times;
  const Deadline enough = Deadline::after(kPingTime);
  for (int i = 0; i < kWarmUps + kPings && (i <= kWarmUps || !enough.has_passed()); ++i) {
    const auto began = std::chrono::steady_clock::now();
    HVD_TRY(ping(fd, deadline));
    if (i >= kWarmUps) {
      times.push_back(std::chrono::steady_clock::now() - began);
    }
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The other end closes once it has told the launcher what came.
Result<void> stream(int fd, Deadline deadline) {
  const std::vector<std::uint8_t> chunk(kChunkBytes);
  HVD_TRY(send_all(fd, kStream, deadline));
  const Deadline enough = Deadline::after(kProbeStreamTime);
  for (std::uint64_t sent = 0; sent < kProbeBytes && !enough.has_passed(); sent += chunk.size()) {
    HVD_TRY(send_all(fd, chunk, deadline));
  }
  ::shutdown(fd, SHUT_WR);
  std::uint8_t none = 0;
  const auto over = recv_exact(fd, MutableBytes(&none, 1), deadline);
  return !over.ok() && over.error().code() == Code::kLostPeer ? Result<void>() : over;
}

// Counts bytes, from the first that come until the other end has sent all. Those that came by the deadline count, too:
// a link that is so slow must be shown, not hidden.
Result<void> drain(int fd, ProbeResult& result, Deadline deadline) {
  std::vector<std::uint8_t> buffer(kChunkBytes * 2);
  std::optional<TimePoint> first;
  for (;;) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    const TimePoint now = std::chrono::steady_clock::now();
    if (got > 0) {
      if (first) {
        result.bytes += static_cast<std::uint64_t>(got);  // what came first belongs to the time before
        result.stream_time = now - *first;
      }
      first = first.value_or(now);
    }
    if (got == 0) {
      return {};
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return Error::from_errno("recv");
    }
    if (deadline.has_passed()) {
      return Error(Code::kTimeout, "the bytes did not come through in time");
    }
    if (got < 0) {
      pollfd ready{fd, POLLIN, 0};
      ::poll(&ready, 1, deadline.poll_ms());
    }
  }
}

// Visitor has connected, and has not proved yet who it is.
struct Visitor {
  Fd fd;
  HandshakeAcceptor handshake;
};

// Sends a few bytes on a connection whose buffer is empty, so it does not wait.
Result<void> say_now(const Fd& fd, const std::string& bytes) {
  return send_all(fd.get(), as_bytes(bytes), Deadline::after(Duration::zero()));
}

// Accepts the callers that wait at the listener, at most as many at once as may be visitors.
Result<void> greet_all(int listener, const ProbeRequest& request, const JobSecret& secret,
                       std::vector<Visitor>& visitors) {
  for (std::size_t count = 0; count < kMostVisitors; ++count) {
    HVD_TRY_ASSIGN(Fd fd, accept_ready(listener));
    if (!fd.is_open()) {
      return {};
    }
    HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
    Visitor visitor{std::move(fd), HandshakeAcceptor(secret, request.to, nonce)};
    if (!say_now(visitor.fd, visitor.handshake.greeting()).ok()) {
      continue;
    }
    if (visitors.size() == kMostVisitors) {
      visitors.erase(visitors.begin());
    }
    visitors.push_back(std::move(visitor));
  }
  return {};
}

// Returns true for the node that is waited for, and false while it has not said all yet.
Result<bool> hear(Visitor& visitor, const ProbeRequest& request) {
  std::array<std::uint8_t, kClaimBytes> buffer{};
  const std::size_t wanted = std::min(visitor.handshake.wanted(), buffer.size());
  const ssize_t got = ::recv(visitor.fd.get(), buffer.data(), wanted, MSG_DONTWAIT);
  if (got == 0) {
    return Error(Code::kLostPeer, "the peer closed the connection");
  }
  if (got < 0 && errno != EAGAIN && errno != EINTR) {
    return Error::from_errno("recv");
  }
  if (got < 0) {
    return false;
  }
  HVD_TRY_ASSIGN(const auto claim, visitor.handshake.feed(Bytes(buffer).first(static_cast<std::size_t>(got))));
  if (!claim) {
    return false;
  }
  if (claim->from != request.from) {
    return Error(Code::kProtocol, "another node has called");
  }
  HVD_TRY(say_now(visitor.fd, visitor.handshake.proof()));
  return true;
}

void await_any(int listener, const std::vector<Visitor>& visitors, Deadline deadline) {
  std::vector<pollfd> waits;
  waits.push_back(pollfd{listener, POLLIN, 0});
  for (const Visitor& visitor : visitors) {
    waits.push_back(pollfd{visitor.fd.get(), POLLIN, 0});
  }
  ::poll(waits.data(), waits.size(), deadline.poll_ms());
}

// Returns the connection of the node that is waited for. Strangers are heard beside it, and cannot use up its time.
Result<Fd> accept_proven(int listener, const ProbeRequest& request, const JobSecret& secret, Deadline deadline) {
  Error last(Code::kTimeout, "no connection came");
  std::vector<Visitor> visitors;
  while (!deadline.has_passed()) {
    await_any(listener, visitors, deadline);
    HVD_TRY(greet_all(listener, request, secret, visitors));
    for (Visitor& visitor : visitors) {
      const auto is_proven = hear(visitor, request);
      if (!is_proven.ok()) {
        last = is_proven.error();
        visitor.fd.reset();
      } else if (is_proven.value()) {
        return std::move(visitor.fd);
      }
    }
    std::erase_if(visitors, [](const Visitor& visitor) { return !visitor.fd.is_open(); });
  }
  return visitors.empty() ? last : Error(Code::kTimeout, "a process that connected did not identify itself in time");
}

}  // namespace

ProbeResult dial_probe(const ProbeRequest& request, const JobSecret& secret, Deadline deadline) {
  ProbeResult result = begin(request);
  const auto address = SocketAddress::parse(request.address);
  if (!address.ok()) {
    return failed(result, ProbeStage::kConnect, address.error());
  }
  const auto connected = connect_tcp(address.value(), share_of(deadline, kConnectShare));
  if (!connected.ok()) {
    return failed(result, ProbeStage::kConnect, connected.error());
  }
  const int fd = connected.value().get();
  const auto nonce = make_nonce();
  if (!nonce.ok()) {
    return failed(result, ProbeStage::kProve, nonce.error());
  }
  HandshakeConnector handshake(secret, LinkClaim{LinkRole::kData, request.from, request.to}, nonce.value());
  Result<void> done = prove(fd, handshake, deadline);
  done = done.ok() ? tune_tcp(fd) : done;
  if (!done.ok()) {
    return failed(result, ProbeStage::kProve, done.error());
  }
  const auto round_trip = measure_round_trip(fd, deadline);
  if (!round_trip.ok()) {
    return failed(result, ProbeStage::kPing, round_trip.error());
  }
  result.round_trip = round_trip.value();
  done = stream(fd, deadline);
  if (!done.ok()) {
    return failed(result, ProbeStage::kStream, done.error());
  }
  result.stage = ProbeStage::kDone;
  return result;
}

ProbeResult answer_probe(int listener, const ProbeRequest& request, const JobSecret& secret, Deadline deadline) {
  ProbeResult result = begin(request);
  const auto accepted = accept_proven(listener, request, secret, deadline);
  if (!accepted.ok()) {
    return failed(result, ProbeStage::kConnect, accepted.error());
  }
  const int fd = accepted.value().get();
  Result<void> done = tune_tcp(fd);
  for (Word word{}; done.ok();) {
    done = recv_exact(fd, word, deadline);
    if (!done.ok() || word == kStream) {
      break;
    }
    done = word == kPing ? send_all(fd, word, deadline)
                         : Result<void>(Error(Code::kProtocol, "the other end speaks otherwise than an agent"));
  }
  if (!done.ok()) {
    return failed(result, ProbeStage::kPing, done.error());
  }
  done = drain(fd, result, deadline);
  if (!done.ok()) {
    return failed(result, ProbeStage::kStream, done.error());
  }
  result.stage = ProbeStage::kDone;
  return result;
}

}  // namespace hvd::launch
