#include "runtime/link/meeting.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "runtime/base/text.h"

namespace hvd {
namespace {

// A rank that connects is in its own Meeting and answers at once; this is enough even for a machine that swaps.
constexpr auto kStrangerDeadline = std::chrono::seconds(10);
// When there are more than this many unproven connections beyond the expected ones, the oldest is closed.
constexpr std::size_t kMaxStrangers = 256;
// At most so many connections are taken in one turn. Somebody who calls faster than calls are taken would else keep
// this rank from all other connections, and from its deadline.
constexpr int kMostAtOnce = 64;
// So many strangers are told of by a line each, and the others by their number. How often they call is up to them.
constexpr std::uint64_t kMostTold = 32;
// The store is asked for a notice at least this often, if it has no descriptor to wait on.
constexpr auto kNoticeEvery = std::chrono::milliseconds(100);

// Reads at most `wanted` of the bytes that have come. Empty: nothing has come. An error: the connection has ended.
Result<std::string> read_some(int fd, std::size_t wanted) {
  std::array<char, kClaimBytes> buffer;
  for (;;) {
    const ssize_t got = ::recv(fd, buffer.data(), std::min(wanted, buffer.size()), MSG_DONTWAIT);
    if (got > 0) {
      return std::string(buffer.data(), static_cast<std::size_t>(got));
    }
    if (got == 0) {
      return Error(Code::kLostPeer, "the connection was closed");
    }
    if (errno == EAGAIN) {
      return std::string();
    }
    if (errno != EINTR) {
      return Error::from_errno("recv");
    }
  }
}

// Handshake messages are far smaller than an empty socket buffer, so one that cannot be sent at once is an error.
Result<void> send_now(int fd, const std::string& bytes) {
  return send_all(fd, as_bytes(bytes), Deadline::after(Duration::zero()));
}

}  // namespace

struct Meeting::Outgoing {
  LinkClaim claim;
  std::string address;
  Fd fd;
  HandshakeConnector handshake;
  bool is_tcp = false;
  bool is_connected = false;
};

struct Meeting::Incoming {
  Fd fd;
  HandshakeAcceptor handshake;
  Patience patience;
  std::string address;
  bool is_tcp = false;
};

Meeting::Meeting(int rank, Store& store, Log& log, Deadline deadline, Options options)
    : rank_(rank), store_(store), log_(log), options_(std::move(options)), patience_(deadline) {}

Meeting::~Meeting() {
  if (strangers_ > kMostTold) {
    log_.write(LogLevel::kWarning, name_of_rank(rank_) + " closed " + std::to_string(strangers_ - kMostTold) +
                                       " more connections that proved nothing");
  }
}

std::string Meeting::name_of_rank(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return "rank " + std::to_string(at < options_.job_ranks.size() ? options_.job_ranks[at] : rank);
}

std::string Meeting::who(int rank, const std::string& address) const {
  return name_of_rank(rank) + " at " + address;
}

Result<void> Meeting::connect_by_tcp(LinkRole role, int to, const SocketAddress& address) {
  auto fd = start_connect_tcp(address, [this](int socket) { return choose_congestion(socket, options_.congestion); });
  if (!fd.ok()) {
    return fd.error().with_context(who(to, address.text()));
  }
  return connected(role, to, address.text(), std::move(fd).value(), true);
}

Result<void> Meeting::connect_by_unix(LinkRole role, int to, const std::string& path) {
  auto fd = connect_unix(path, patience_.until());
  if (!fd.ok()) {
    return fd.error().with_context(who(to, path));
  }
  return connected(role, to, path, std::move(fd).value(), false);
}

// Starts the handshake on a socket that is connected, or about to be.
Result<void> Meeting::connected(LinkRole role, int to, const std::string& address, Fd fd, bool is_tcp) {
  HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
  HVD_TRY_ASSIGN(std::optional<KeyPair> key, make_key(is_tcp));
  const LinkClaim claim{role, rank_, to};
  outgoing_.push_back(std::make_unique<Outgoing>(Outgoing{
      claim, address, std::move(fd), HandshakeConnector(store_.secret(), claim, nonce, std::move(key)), is_tcp}));
  return {};
}

Result<std::optional<KeyPair>> Meeting::make_key(bool is_tcp) const {
  if (!is_tcp || !options_.is_sealed) {
    return std::optional<KeyPair>();
  }
  HVD_TRY_ASSIGN(KeyPair key, KeyPair::make());
  return std::optional<KeyPair>(std::move(key));
}

std::optional<RecordKeys> Meeting::keys_of(bool is_tcp, const RecordKeys& keys) const {
  return is_tcp && options_.is_sealed ? std::optional(keys) : std::nullopt;
}

Result<std::vector<Meeting::Met>> Meeting::run() {
  while (!outgoing_.empty() || !expected_.empty()) {
    if (patience_.is_over()) {
      return timed_out();
    }
    HVD_TRY(turn());
    if (const auto notice = store_.poll_notice()) {
      return Error(Code::kLostPeer, notice->cause);
    }
  }
  return std::move(met_);
}

TimePoint Meeting::next_wake() const {
  TimePoint wake = patience_.until().at();
  for (const auto& incoming : incoming_) {
    wake = std::min(wake, incoming->patience.until().at());
  }
  if (store_.notice_fd() < 0) {
    wake = std::min(wake, Deadline::after(kNoticeEvery).at());
  }
  return wake;
}

Result<void> Meeting::turn() {
  std::vector<pollfd> waits;
  for (const Listener& listener : listeners_) {
    waits.push_back(pollfd{listener.fd, POLLIN, 0});
  }
  for (const auto& outgoing : outgoing_) {
    waits.push_back(pollfd{outgoing->fd.get(), static_cast<short>(outgoing->is_connected ? POLLIN : POLLOUT), 0});
  }
  for (const auto& incoming : incoming_) {
    waits.push_back(pollfd{incoming->fd.get(), POLLIN, 0});
  }
  waits.push_back(pollfd{store_.notice_fd(), POLLIN, 0});
  if (::poll(waits.data(), waits.size(), Deadline(next_wake()).poll_ms()) < 0) {
    if (errno != EINTR) {
      return Error::from_errno("poll");
    }
    return {};
  }
  // Of many ranks one or two have something to say in a turn. Each of the others would cost a system call.
  auto waited = waits.cbegin() + static_cast<std::ptrdiff_t>(listeners_.size());
  for (const auto& outgoing : outgoing_) {
    if ((waited++)->revents != 0) {
      HVD_TRY(advance(*outgoing));
    }
  }
  for (const auto& incoming : incoming_) {
    if ((waited++)->revents != 0 || incoming->patience.is_over()) {
      advance(*incoming);
    }
  }
  // A connection that is settled has handed over its descriptor or closed it.
  std::erase_if(outgoing_, [](const auto& each) { return !each->fd.is_open(); });
  std::erase_if(incoming_, [](const auto& each) { return !each->fd.is_open(); });
  for (const Listener& listener : listeners_) {
    HVD_TRY(accept_some(listener));
  }
  return {};
}

Result<void> Meeting::advance(Outgoing& outgoing) {
  const auto in_context = [&](const Error& error) {
    return error.with_context(std::string("no ") + name_of(outgoing.claim.role) + " connection to " +
                              who(outgoing.claim.to, outgoing.address));
  };
  if (!outgoing.is_connected) {
    pollfd p{outgoing.fd.get(), POLLOUT, 0};
    if (::poll(&p, 1, 0) <= 0) {
      return {};
    }
    if (const auto made = finish_connect(outgoing.fd.get(), "connect"); !made.ok()) {
      return in_context(made.error());
    }
    outgoing.is_connected = true;
  }
  while (!outgoing.handshake.is_done()) {
    auto bytes = read_some(outgoing.fd.get(), outgoing.handshake.wanted());
    if (!bytes.ok()) {
      return in_context(Error(Code::kAuth, bytes.error().message() +
                                               " before the other end had proved itself: it has "
                                               "another job secret, is not a rank of this job, or has died"));
    }
    if (bytes.value().empty()) {
      return {};
    }
    auto answer = outgoing.handshake.feed(as_bytes(bytes.value()));
    if (!answer.ok()) {
      return in_context(answer.error());
    }
    if (const auto sent = send_now(outgoing.fd.get(), answer.value()); !sent.ok()) {
      return in_context(sent.error());
    }
  }
  met_.push_back(Met{outgoing.claim, std::move(outgoing.fd), keys_of(outgoing.is_tcp, outgoing.handshake.keys())});
  return {};
}

Result<void> Meeting::accept_some(const Listener& listener) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    auto accepted = accept_ready(listener.fd);
    if (!accepted.ok()) {
      // The process is out of descriptors, perhaps because of strangers. So the oldest unproven connection is closed.
      if (accepted.error().code() == Code::kResource && !incoming_.empty()) {
        drop(*incoming_.front(), "this process is out of descriptors");
        incoming_.erase(incoming_.begin());
        continue;
      }
      return accepted.error().with_context("accepting connections of other ranks");
    }
    Fd fd = std::move(accepted).value();
    if (!fd.is_open()) {
      return {};
    }
    const auto peer = SocketAddress::peer_of(fd.get());
    const std::string address = peer.ok() && peer.value().family() != AF_UNIX ? peer.value().text() : "this node";
    HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
    HVD_TRY_ASSIGN(std::optional<KeyPair> key, make_key(listener.is_tcp));
    auto incoming = std::make_unique<Incoming>(
        Incoming{std::move(fd), HandshakeAcceptor(store_.secret(), rank_, nonce, std::move(key)),
                 Patience(Deadline::after(kStrangerDeadline)), address, listener.is_tcp});
    if (const auto sent = send_now(incoming->fd.get(), incoming->handshake.greeting()); !sent.ok()) {
      drop(*incoming, sent.error().message());
      continue;
    }
    if (incoming_.size() >= expected_.size() + kMaxStrangers) {
      drop(*incoming_.front(), "too many connections that prove nothing");
      incoming_.erase(incoming_.begin());
    }
    incoming_.push_back(std::move(incoming));
  }
  return {};
}

void Meeting::advance(Incoming& incoming) {
  for (;;) {
    auto bytes = read_some(incoming.fd.get(), incoming.handshake.wanted());
    if (!bytes.ok()) {
      drop(incoming, bytes.error().message());
      return;
    }
    if (bytes.value().empty()) {
      if (incoming.patience.is_over()) {
        drop(incoming, "it said nothing valid for " + std::to_string(kStrangerDeadline.count()) + " s");
      }
      return;
    }
    auto claim = incoming.handshake.feed(as_bytes(bytes.value()));
    if (!claim.ok()) {
      drop(incoming, claim.error().message());
      return;
    }
    if (claim.value()) {
      admit(incoming, *claim.value());
      return;
    }
  }
}

void Meeting::admit(Incoming& incoming, const LinkClaim& claim) {
  const auto found = std::find(expected_.begin(), expected_.end(), claim);
  if (found == expected_.end()) {
    drop(incoming, std::string("a ") + name_of(claim.role) + " connection of " + name_of_rank(claim.from) +
                       " is not expected, or is there already");
    return;
  }
  if (const auto sent = send_now(incoming.fd.get(), incoming.handshake.proof()); !sent.ok()) {
    drop(incoming, sent.error().message());
    return;
  }
  expected_.erase(found);
  met_.push_back(Met{claim, std::move(incoming.fd), keys_of(incoming.is_tcp, incoming.handshake.keys())});
}

void Meeting::drop(Incoming& incoming, const std::string& why) {
  log_.write(++strangers_ > kMostTold ? LogLevel::kDebug : LogLevel::kWarning,
             name_of_rank(rank_) + " closed a connection from " + incoming.address + ": " + why);
  incoming.fd.reset();
}

Error Meeting::timed_out() const {
  std::string missing;
  int count = 0;
  constexpr int kNamed = 5;
  const auto add = [&](const std::string& text) {
    if (++count <= kNamed) {
      add_to_list(missing, text);
    }
  };
  for (const auto& outgoing : outgoing_) {
    add(who(outgoing->claim.to, outgoing->address) + (outgoing->is_connected ? " (connected, silent)" : ""));
  }
  for (const LinkClaim& expected : expected_) {
    add(std::string(name_of(expected.role)) + " connection from " + name_of_rank(expected.from));
  }
  if (count > kNamed) {
    missing += " and " + std::to_string(count - kNamed) + " more";
  }
  return Error(Code::kTimeout, name_of_rank(rank_) + " could not meet all ranks in time; missing: " + missing);
}

}  // namespace hvd
