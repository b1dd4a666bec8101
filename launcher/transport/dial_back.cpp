#include "launcher/transport/dial_back.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/io/byte_channel.h"
#include "runtime/io/scope.h"

namespace hvd::launch {
namespace {

// All agents of a job may call in the same moment, so that many calls may wait in the kernel.
constexpr int kBacklog = 4096;

// At most so many addresses of strangers are named. How often they call, and from how many addresses, is up to them.
constexpr std::size_t kMostTold = 8;

// An agent calls at all addresses at once, and hangs up where it did not get through first. That deserves no warning.
LogLevel level_of_leaving(const Error& why) {
  const bool has_left = why.code() == Code::kLostPeer || why.sys_errno() == ENOTCONN;
  return has_left ? LogLevel::kDebug : LogLevel::kWarning;
}

}  // namespace

class DialBackStream final : public Stream {
 public:
  DialBackStream(DialBack& owner, int rank, StreamSink& sink) : owner_(owner), rank_(rank), sink_(sink) {}

  ~DialBackStream() override { owner_.give_up(*this, rank_); }
  DialBackStream(const DialBackStream&) = delete;
  DialBackStream& operator=(const DialBackStream&) = delete;

  // Sends the proof that ends the handshake, for which an agent that has called still waits.
  Result<void> adopt(EventLoop& loop, Fd fd, const HandshakeAcceptor& handshake) {
    HVD_TRY(tune_tcp(fd.get()));
    HVD_TRY(send_all(fd.get(), as_bytes(handshake.proof()), Deadline::after(Duration::zero())));
    HVD_TRY_ASSIGN(const SocketAddress own, SocketAddress::local_of(fd.get()));
    HVD_TRY_ASSIGN(const SocketAddress peer, SocketAddress::peer_of(fd.get()));
    ByteChannel::Handlers handlers;
    handlers.on_bytes = [this](Bytes bytes) { sink_.on_bytes(bytes); };
    handlers.on_closed = [this](const Error& why) {
      is_over_ = true;
      scope_.post([this] { channel_.reset(); });  // the stream may live for as long as the job
      sink_.on_closed(Error(Code::kLostPeer,
                            "the connection to its agent is over: " + why.message() + owner_.options_.lost_advice));
    };
    HVD_TRY_ASSIGN(channel_, ByteChannel::create(loop, std::move(fd), Fd(), std::move(handlers),
                                                 make_record_filter(handshake.keys())));
    Opened opened;
    // An agent that a user has started has an environment of its own, also on this machine.
    opened.is_local = own.ip() == peer.ip() && !owner_.seat_;
    opened.node_address = peer.ip();
    opened.launcher_address = own.ip();
    sink_.on_open(opened);
    return {};
  }

  // The agent has called, and is gone already.
  void fail(const Error& why) {
    scope_.post([this, why] { sink_.on_closed(why); });
  }

  void write(std::string bytes) override {
    if (channel_) {
      channel_->write(bytes);
    }
  }

  void close_input() override {
    if (channel_) {
      channel_->close_output();
      return;
    }
    if (is_over_) {
      return;
    }
    owner_.give_up(*this, rank_);
    scope_.post([this] { sink_.on_closed(Error(kAgentEnded, "the agent has not called")); });
  }

 private:
  DialBack& owner_;
  const int rank_;
  StreamSink& sink_;
  std::unique_ptr<ByteChannel> channel_;  // null: the agent has not called, or its connection is over
  bool is_over_ = false;
  Scope scope_{owner_.loop_};
};

Result<DialBackOptions> DialBackOptions::make(bool is_local) {
  HVD_TRY_ASSIGN(const JobSecret secret, make_nonce());
  HVD_TRY_ASSIGN(KeyPair pair, KeyPair::make());
  DialBackOptions options(secret, std::move(pair));
  options.is_local = is_local;
  return options;
}

Result<std::unique_ptr<DialBack>> DialBack::listen(EventLoop& loop, const DialBackOptions& options, Log& log) {
  std::unique_ptr<DialBack> transport(new DialBack(loop, options, log));
  const auto port = static_cast<std::uint16_t>(options.port);
  if (options.is_local) {
    HVD_TRY_ASSIGN(const SocketAddress loopback, SocketAddress::make("127.0.0.1", port));
    HVD_TRY(transport->listen_at(loopback));
    return transport;
  }
  HVD_TRY_ASSIGN(const std::vector<std::string> ips, interface_ips());
  std::string why = "this machine has no network interface that is up";
  for (const std::string& ip : ips) {
    HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::make(ip, port));
    if (const auto listening = transport->listen_at(address); !listening.ok()) {
      why = listening.error().message();  // an IPv6 address may not be settled yet; the others serve
    }
  }
  if (!transport->is_listening()) {
    return Error(Code::kSystem, "agents on other hosts have no way to call this one: " + why);
  }
  return transport;
}

DialBack::DialBack(EventLoop& loop, const DialBackOptions& options, Log& log)
    : loop_(loop), options_(options), log_(log) {}

DialBack::~DialBack() {
  stop();
}

void DialBack::stop() {
  stop_listening();
  while (!callers_.empty()) {
    forget(callers_.begin()->first);
  }
}

Result<void> DialBack::listen_at(const SocketAddress& address) {
  Listener listener;
  HVD_TRY_ASSIGN(listener.fd, listen_tcp(address, kBacklog));
  HVD_TRY_ASSIGN(const SocketAddress bound, SocketAddress::local_of(listener.fd.get()));
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [this](Fd connection) { on_connection(std::move(connection)); };
  handlers.on_trouble = [this](const Error& why) {
    if (!std::exchange(has_told_trouble_, true)) {  // one report for all listeners
      log_.write(LogLevel::kWarning,
                 "an agent's call cannot be taken yet: " + why.message() + "; it is tried again and again");
    }
  };
  HVD_TRY_ASSIGN(listener.accepting, AcceptWatch::create(loop_, listener.fd.get(), std::move(handlers)));
  listeners_.push_back(std::move(listener));
  addresses_.push_back(bound.text());
  return {};
}

std::unique_ptr<Stream> DialBack::open(const NodeTarget& target, StreamSink& sink) {
  auto stream = std::make_unique<DialBackStream>(*this, target.rank, sink);
  waiting_[target.rank] = stream.get();
  return stream;
}

void DialBack::on_connection(Fd connection) {
  if (callers_.size() >= options_.most_callers) {
    drop(callers_.begin()->first, LogLevel::kWarning, "too many callers that do not prove themselves");
  }
  if (const auto greeted = greet(std::move(connection)); !greeted.ok()) {
    log_.write(level_of_leaving(greeted.error()), "an agent's call cannot be taken: " + greeted.error().message());
  }
}

Result<void> DialBack::greet(Fd fd) {
  HVD_TRY_ASSIGN(const SocketAddress peer, SocketAddress::peer_of(fd.get()));
  HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
  const HandshakeAcceptor handshake(options_.secret, kLauncher, nonce, options_.pair);
  // This cannot wait, since the greeting is far smaller than an empty socket buffer.
  HVD_TRY(send_all(fd.get(), as_bytes(handshake.greeting()), Deadline::after(Duration::zero())));
  const std::uint64_t number = next_caller_++;
  const int raw = fd.get();
  HVD_TRY_ASSIGN(const WatchId watch,
                 loop_.watch(raw, EPOLLIN, [this, number](std::uint32_t) { on_readable(number); }));
  const TimerId timer = loop_.after(options_.patience, [this, number] {
    callers_.at(number).timer = 0;
    drop(number, LogLevel::kWarning, "it has not proven itself in time");
  });
  callers_.emplace(number, Caller{std::move(fd), peer, handshake, watch, timer});
  return {};
}

void DialBack::on_readable(std::uint64_t number) {
  Caller& caller = callers_.at(number);
  const bool has_spoken = caller.handshake.wanted() < kClaimBytes;
  const auto claim = hear(caller);
  if (!claim.ok()) {
    return drop(number, has_spoken ? LogLevel::kWarning : level_of_leaving(claim.error()), claim.error().message());
  }
  if (!claim.value()) {
    return;
  }
  loop_.unwatch(std::exchange(caller.watch, 0));
  if (const auto seated = seat(caller, *claim.value()); !seated.ok()) {
    return drop(number, LogLevel::kWarning, seated.error().message());
  }
  forget(number);
  if (waiting_.empty() && !seat_) {
    stop_listening();
  }
}

Result<std::optional<LinkClaim>> DialBack::hear(Caller& caller) {
  std::array<std::uint8_t, kClaimBytes + 2 * kMaxClaimText> buffer{};
  const std::size_t wanted = std::min(caller.handshake.wanted(), buffer.size());
  const ssize_t got = ::recv(caller.fd.get(), buffer.data(), wanted, MSG_DONTWAIT);
  if (got > 0) {
    return caller.handshake.feed(Bytes(buffer).first(static_cast<std::size_t>(got)));
  }
  if (got == 0) {
    return Error(Code::kLostPeer, "it has closed the connection");
  }
  if (errno != EAGAIN && errno != EINTR) {
    return Error::from_errno("recv");
  }
  return std::optional<LinkClaim>();
}

Result<void> DialBack::seat(Caller& caller, const LinkClaim& claim) {
  // The handshake proves what the agent says. If it called another address than ours, somebody stands between us.
  HVD_TRY_ASSIGN(const SocketAddress own, SocketAddress::local_of(caller.fd.get()));
  if (claim.address != own.text()) {
    return Error(Code::kAuth, "the agent of rank " + std::to_string(claim.from) + " on '" + claim.node +
                                  "' has called " + claim.address + ", and this is " + own.text() +
                                  ": somebody relays the call, or an address is translated on the way");
  }
  const int rank = seat_ ? seat_() : claim.from;
  const auto found = waiting_.find(rank);
  if (found == waiting_.end()) {
    return Error(Code::kProtocol, "it is agent " + std::to_string(claim.from) + " on '" + claim.node +
                                      "', which has called already or is not ours");
  }
  DialBackStream* stream = found->second;
  waiting_.erase(found);
  const auto adopted = stream->adopt(loop_, std::move(caller.fd), caller.handshake);
  if (!adopted.ok() && seat_) {
    stream->fail(adopted.error());
  } else if (!adopted.ok()) {
    waiting_[rank] = stream;
  }
  return adopted;
}

void DialBack::give_up(const DialBackStream& stream, int rank) {
  const auto found = waiting_.find(rank);
  if (found == waiting_.end() || found->second != &stream) {
    return;
  }
  waiting_.erase(found);
  if (waiting_.empty() && !seat_) {
    stop_listening();
  }
}

void DialBack::drop(std::uint64_t number, LogLevel level, const std::string& why) {
  const SocketAddress& address = callers_.at(number).address;
  log_.write(level_for(address, level), "a call from " + address.text() + " is refused: " + why);
  forget(number);
}

LogLevel DialBack::level_for(const SocketAddress& stranger, LogLevel level) {
  if (level < LogLevel::kWarning) {
    return level;
  }
  if (told_strangers_.size() < kMostTold && told_strangers_.insert(stranger.ip()).second) {
    return level;
  }
  ++untold_strangers_;
  return LogLevel::kDebug;
}

void DialBack::sum_up_strangers() {
  if (const std::uint64_t count = std::exchange(untold_strangers_, 0); count > 0) {
    log_.write(LogLevel::kWarning, std::to_string(count) + (count == 1 ? " more call was" : " more calls were") +
                                       " refused, of " + *told_strangers_.begin() +
                                       (told_strangers_.size() > 1 ? " and others" : ""));
  }
}

void DialBack::forget(std::uint64_t number) {
  Caller& caller = callers_.at(number);
  loop_.unwatch(caller.watch);
  loop_.cancel(caller.timer);
  callers_.erase(number);
}

void DialBack::stop_listening() {
  listeners_.clear();
  sum_up_strangers();
}

}  // namespace hvd::launch
