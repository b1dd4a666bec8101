#include "launcher/tree/peer_server.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/record.h"

namespace hvd::launch {
namespace {

// A caller that has not proven itself is dropped after this.
constexpr auto kPatience = std::chrono::seconds(10);
// The launcher sends no more than a few nodes here; strangers are not to use up what there is.
constexpr std::size_t kMostCallers = 32;
// 8 MiB of frames: twice of what may be under way to a caller.
constexpr std::size_t kMostKept = 32;
constexpr std::size_t kMostKeptBytes = 512U << 10U;
// PeerFetch gives up after three of these.
constexpr auto kAlive = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::listen(EventLoop& loop, const JobSecret& secret, Source source) {
  std::unique_ptr<PeerServer> server(new PeerServer(loop, secret, std::move(source)));
  HVD_TRY_ASSIGN(const SocketAddress any, SocketAddress::make("0.0.0.0", 0));
  HVD_TRY_ASSIGN(server->listener_, listen_tcp(any));
  HVD_TRY_ASSIGN(const SocketAddress own, SocketAddress::local_of(server->listener_.get()));
  server->port_ = own.port();
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [raw = server.get()](Fd fd) { raw->greet(std::move(fd)); };
  handlers.on_trouble = [](const Error&) {};  // the caller gives up, and the launcher sends it what it lacks
  HVD_TRY_ASSIGN(server->accept_, AcceptWatch::create(loop, server->listener_.get(), std::move(handlers)));
  server->alive_timer_ = loop.after(kAlive, [raw = server.get()] { raw->tell_waiting(); });
  return server;
}

PeerServer::~PeerServer() {
  loop_.cancel(timer_);
  loop_.cancel(alive_timer_);
  while (!callers_.empty()) {
    drop(callers_.begin()->first);
  }
}

void PeerServer::greet(Fd fd) {
  const auto nonce = make_nonce();
  auto pair = KeyPair::make();
  if (!nonce.ok() || !pair.ok()) {
    return;
  }
  if (callers_.size() >= kMostCallers) {
    const auto stranger = std::find_if(callers_.begin(), callers_.end(),
                                       [](const auto& caller) { return caller.second.channel == nullptr; });
    if (stranger == callers_.end()) {
      return;  // the newcomer gets the files from the launcher
    }
    drop(stranger->first);
  }
  const std::uint64_t number = next_caller_++;
  Caller caller;
  caller.handshake.emplace(secret_, kFileServer, nonce.value(), std::move(pair).value());
  // This cannot wait, since the greeting is far smaller than an empty socket buffer.
  if (!send_all(fd.get(), as_bytes(caller.handshake->greeting()), Deadline::after(Duration::zero())).ok()) {
    return;
  }
  auto watch = loop_.watch(fd.get(), EPOLLIN, [this, number](std::uint32_t) { hear(number); });
  if (!watch.ok()) {
    return;
  }
  caller.watch = watch.value();
  caller.fd = std::move(fd);
  caller.timer = loop_.after(kPatience, [this, number] { drop(number); });
  callers_.emplace(number, std::move(caller));
}

void PeerServer::hear(std::uint64_t number) {
  Caller& caller = callers_.at(number);
  const auto proven = hear_proof(caller);
  if (!proven.ok() || (proven.value() && !open_channel(number, caller).ok())) {
    drop(number);
  }
}

Result<bool> PeerServer::hear_proof(Caller& caller) {
  std::array<std::uint8_t, kClaimBytes + 2 * kMaxClaimText> buffer{};
  const std::size_t wanted = std::min(caller.handshake->wanted(), buffer.size());
  const ssize_t got = ::recv(caller.fd.get(), buffer.data(), wanted, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return false;
  }
  if (got <= 0) {
    return Error(Code::kLostPeer, "the caller has left");
  }
  HVD_TRY_ASSIGN(const auto claim, caller.handshake->feed(Bytes(buffer).first(static_cast<std::size_t>(got))));
  return claim.has_value();
}

Result<void> PeerServer::open_channel(std::uint64_t number, Caller& caller) {
  loop_.unwatch(std::exchange(caller.watch, 0));
  loop_.cancel(std::exchange(caller.timer, 0));
  HVD_TRY(tune_tcp(caller.fd.get()));
  HVD_TRY(send_all(caller.fd.get(), as_bytes(caller.handshake->proof()), Deadline::after(Duration::zero())));
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this, number](Bytes bytes) { on_bytes(number, bytes); };
  handlers.on_closed = [this, number](const Error&) { drop(number); };
  HVD_TRY_ASSIGN(caller.channel, ByteChannel::create(loop_, std::move(caller.fd), Fd(), std::move(handlers),
                                                     make_record_filter(caller.handshake->keys())));
  return {};
}

void PeerServer::on_bytes(std::uint64_t number, Bytes bytes) {
  Caller& caller = callers_.at(number);
  caller.decoder.feed(bytes);
  for (;;) {
    auto next = caller.decoder.next();
    if (next.ok() && !next.value()) {
      return;
    }
    if (!next.ok() || !on_frame(caller, *next.value()).ok()) {
      drop(number);
      return;
    }
  }
}

Result<void> PeerServer::on_frame(Caller& caller, const Frame& frame) {
  if (frame.type == static_cast<std::uint16_t>(AgentMessage::kFileCredit)) {
    HVD_TRY_ASSIGN(const FileCredit credit, FileCredit::decode(frame.body));
    caller.credit += static_cast<std::int64_t>(std::min(credit.bytes, kTreeWindow));
    send_soon();
    return {};
  }
  if (frame.type != static_cast<std::uint16_t>(AgentMessage::kWantFiles) || !caller.wanted.empty()) {
    return Error(Code::kProtocol, "a message that is not for who gives files");
  }
  HVD_TRY_ASSIGN(WantedFiles wanted, WantedFiles::decode(frame.body));
  const bool is_known = std::all_of(wanted.indices.begin(), wanted.indices.end(), [this](std::uint32_t index) {
    return index < source_.list->size() && (*source_.list)[index].kind == TreeEntry::Kind::kFile;
  });
  if (!is_known || !std::is_sorted(wanted.indices.begin(), wanted.indices.end())) {
    return Error(Code::kProtocol, "files that are not in the folder");
  }
  caller.wanted = std::move(wanted.indices);
  send_soon();
  return {};
}

void PeerServer::on_arrived(std::string_view body, std::span<const std::uint32_t> files, std::uint64_t offset,
                            std::uint64_t last_bytes) {
  if (callers_.empty() || body.size() > kMostKeptBytes) {
    return;
  }
  if (kept_.size() == kMostKept) {
    kept_.pop_front();
  }
  kept_.push_back(
      {{files.begin(), files.end()}, offset, last_bytes, agent_frame(AgentMessage::kFileBytes, body), body.size()});
  send_soon();
}

const PeerServer::Kept* PeerServer::kept_for(const Caller& caller) const {
  const auto rest = std::span(caller.wanted).subspan(caller.place.file);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.offset == caller.place.offset && kept.files.size() <= rest.size() &&
           std::equal(kept.files.begin(), kept.files.end(), rest.begin());
  });
  return found == kept_.end() ? nullptr : &*found;
}

void PeerServer::drop_passed() {
  const auto is_passed = [this](const Kept& kept) {
    return std::none_of(callers_.begin(), callers_.end(), [&kept](const auto& each) {
      const Caller& caller = each.second;
      return caller.place.file < caller.wanted.size() &&
             std::pair(caller.wanted[caller.place.file], caller.place.offset) <=
                 std::pair(kept.files.front(), kept.offset);
    });
  };
  while (!kept_.empty() && is_passed(kept_.front())) {
    kept_.pop_front();
  }
}

void PeerServer::send_soon() {
  if (timer_ == 0) {
    timer_ = loop_.after(Duration::zero(), [this] {
      timer_ = 0;
      send_more();
    });
  }
}

void PeerServer::send_more() {
  bool is_more = false;
  std::vector<std::uint64_t> failed;
  for (auto& [number, caller] : callers_) {
    const auto sent = send_portion(caller);
    if (!sent.ok()) {
      failed.push_back(number);
    }
    is_more = is_more || (sent.ok() && sent.value());
  }
  for (const std::uint64_t number : failed) {
    drop(number);
  }
  drop_passed();
  if (is_more) {
    send_soon();
  }
}

// A caller that waits for a file which is still on its way here hears that this node is alive.
void PeerServer::tell_waiting() {
  for (auto& [number, caller] : callers_) {
    if (caller.channel != nullptr && caller.place.file < caller.wanted.size()) {
      const std::string body = FileBytes().encode();
      caller.credit -= static_cast<std::int64_t>(body.size());  // which comes back
      caller.channel->write(agent_frame(AgentMessage::kFileBytes, body));
    }
  }
  alive_timer_ = loop_.after(kAlive, [this] { tell_waiting(); });
}

// True: something was sent, so that more may follow.
Result<bool> PeerServer::send_portion(Caller& caller) {
  if (caller.channel == nullptr || caller.credit <= 0 || caller.place.file >= caller.wanted.size()) {
    return false;
  }
  if (const Kept* const kept = kept_for(caller); kept != nullptr) {
    const bool is_last_whole = kept->last_bytes == 0;
    caller.place = {caller.place.file + kept->files.size() - (is_last_whole ? 0 : 1), kept->last_bytes};
    caller.credit -= static_cast<std::int64_t>(kept->body_bytes);
    caller.channel->write(kept->frame);
    return true;
  }
  const auto end = std::lower_bound(caller.wanted.begin(), caller.wanted.end(), source_.first_missing());
  const auto here = static_cast<std::size_t>(end - caller.wanted.begin());
  if (caller.place.file >= here) {
    return false;  // it is on its way to this node
  }
  HVD_TRY_ASSIGN(const FilePortion portion,
                 read_portion(source_.root, *source_.list, caller.wanted, caller.place, here));
  caller.place = portion.next;
  caller.credit -= static_cast<std::int64_t>(portion.body.size());
  caller.channel->write(agent_frame(AgentMessage::kFileBytes, portion.body));
  return true;
}

void PeerServer::drop(std::uint64_t number) {
  const auto found = callers_.find(number);
  if (found == callers_.end()) {
    return;
  }
  if (found->second.watch != 0) {
    loop_.unwatch(found->second.watch);
  }
  loop_.cancel(found->second.timer);
  callers_.erase(found);
}

}  // namespace hvd::launch
