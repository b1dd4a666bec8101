#include "launcher/tree/peer_fetch.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/record.h"

namespace hvd::launch {
namespace {

// A firewall that drops packets is found out so soon at each address; the launcher then sends the files itself.
constexpr auto kAnswerTime = std::chrono::seconds(3);
// The other node may wait for its own source.
constexpr auto kQuietTime = std::chrono::seconds(30);

}  // namespace

PeerFetch::PeerFetch(EventLoop& loop, const JobSecret& secret, std::vector<std::string> addresses,
                     std::vector<std::uint32_t> wanted, Sink sink)
    : loop_(loop),
      secret_(secret),
      addresses_(std::move(addresses)),
      wanted_(std::move(wanted)),
      sink_(std::move(sink)),
      scope_(loop) {
  scope_.post([this] { try_next(); });
}

PeerFetch::~PeerFetch() {
  loop_.cancel(timer_);
  if (watch_ != 0) {
    loop_.unwatch(watch_);
  }
}

void PeerFetch::try_next() {
  if (next_ == addresses_.size()) {
    fail(Error(Code::kUnreachable, why_.empty() ? "no address of it is known" : why_));
    return;
  }
  const std::string& text = addresses_[next_++];
  if (const auto begun = connect(text); !begun.ok()) {
    give_up_address(begun.error());
  }
}

Result<void> PeerFetch::connect(const std::string& text) {
  HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::parse(text));
  HVD_TRY_ASSIGN(fd_, start_connect_tcp(address));
  HVD_TRY_ASSIGN(watch_, loop_.watch(fd_.get(), EPOLLOUT, [this, text](std::uint32_t) { on_connected(text); }));
  await(kAnswerTime);
  return {};
}

void PeerFetch::on_connected(const std::string& text) {
  loop_.unwatch(std::exchange(watch_, 0));
  if (const auto connected = finish_connect(fd_.get(), "connect to " + text); !connected.ok()) {
    give_up_address(connected.error());
    return;
  }
  const auto nonce = make_nonce();
  auto pair = KeyPair::make();
  auto watch = loop_.watch(fd_.get(), EPOLLIN, [this](std::uint32_t) { hear(); });
  if (!nonce.ok() || !pair.ok() || !watch.ok()) {
    give_up_address(!watch.ok() ? watch.error() : Error(Code::kSystem, "no random numbers"));
    return;
  }
  watch_ = watch.value();
  handshake_.emplace(secret_, LinkClaim{LinkRole::kFiles, 0, kFileServer, "", text}, nonce.value(),
                     std::move(pair).value());
}

void PeerFetch::hear() {
  if (const auto heard = hear_server(); !heard.ok()) {
    give_up_address(heard.error());
  }
}

Result<void> PeerFetch::hear_server() {
  std::array<std::uint8_t, kGreetingBytes> buffer{};
  const std::size_t wanted = std::min(handshake_->wanted(), buffer.size());
  const ssize_t got = ::recv(fd_.get(), buffer.data(), wanted, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return {};
  }
  if (got <= 0) {
    return Error(Code::kLostPeer, "it has closed the connection");
  }
  HVD_TRY_ASSIGN(const std::string answer, handshake_->feed(Bytes(buffer).first(static_cast<std::size_t>(got))));
  HVD_TRY(send_all(fd_.get(), as_bytes(answer), Deadline::after(Duration::zero())));
  return handshake_->is_done() ? open_channel() : Result<void>();
}

Result<void> PeerFetch::open_channel() {
  loop_.unwatch(std::exchange(watch_, 0));
  HVD_TRY(tune_tcp(fd_.get()));
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this](Bytes bytes) { on_channel_bytes(bytes); };
  handlers.on_closed = [this](const Error& why) { fail(why); };
  HVD_TRY_ASSIGN(channel_, ByteChannel::create(loop_, std::move(fd_), Fd(), std::move(handlers),
                                               make_record_filter(handshake_->keys())));
  channel_->write(agent_frame(AgentMessage::kWantFiles, WantedFiles{wanted_, 0}.encode()));
  await(kQuietTime);
  return {};
}

void PeerFetch::on_channel_bytes(Bytes bytes) {
  await(kQuietTime);
  decoder_.feed(bytes);
  const auto life = scope_.life();
  while (!life.expired() && !is_over_) {
    const auto next = decoder_.next(frame_);
    if (next.ok() && !next.value()) {
      return;
    }
    const Result<void> taken = next.ok() ? on_frame(frame_) : Result<void>(next.error());
    if (!life.expired() && !taken.ok()) {
      fail(taken.error());
    }
  }
}

Result<void> PeerFetch::on_frame(const Frame& frame) {
  if (frame.type != static_cast<std::uint16_t>(AgentMessage::kFileBytes)) {
    return Error(Code::kProtocol, "a message that is not of who gives files");
  }
  channel_->write(agent_frame(AgentMessage::kFileCredit, FileCredit{frame.body.size()}.encode()));
  return sink_.on_bytes(frame.body);
}

void PeerFetch::give_up_address(const Error& why) {
  if (watch_ != 0) {
    loop_.unwatch(std::exchange(watch_, 0));
  }
  fd_.reset();
  handshake_.reset();
  why_ += (why_.empty() ? "" : "; ") + addresses_[next_ - 1] + ": " + why.message();
  scope_.post([this] { try_next(); });
}

void PeerFetch::fail(const Error& why) {
  if (!std::exchange(is_over_, true)) {
    loop_.cancel(std::exchange(timer_, 0));
    scope_.post([this, why] { sink_.on_failed(why); });
  }
}

void PeerFetch::await(Duration patience) {
  loop_.cancel(timer_);
  timer_ = loop_.after(patience, [this] {
    timer_ = 0;
    const Error late(Code::kTimeout, "nothing comes from there");
    if (channel_ == nullptr) {
      give_up_address(late);
    } else {
      fail(late);
    }
  });
}

}  // namespace hvd::launch
