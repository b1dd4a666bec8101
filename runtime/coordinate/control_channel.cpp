#include "runtime/coordinate/control_channel.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "runtime/controller/message.h"

namespace hvd {
namespace {

// At most this much is read from one rank in one turn, so that a busy rank cannot starve the others.
constexpr std::size_t kTurnBytes = 256U << 10U;
constexpr std::size_t kReadBytes = 16U << 10U;  // on the stack of the thread that runs the engine
// Above this size, memory of sent bytes is freed before the queue has to grow.
constexpr std::size_t kCompactBytes = 1U << 20U;

// Rank 0 has a connection with every rank; the others have only the one with rank 0.
std::string connection_with(int rank, const std::string& kind = "control") {
  return "the " + kind + " connection " + (rank == 0 ? "to rank 0" : "between rank 0 and rank " + std::to_string(rank));
}

Error closed(int rank) {
  return {Code::kLostPeer, connection_with(rank) + " was closed"};
}

}  // namespace

struct ControlChannel::Link {
  int rank = 0;
  int fd = -1;
  std::optional<Lane> lane;
  ByteFilter* filter = nullptr;
  WatchId watch = 0;
  FrameDecoder decoder{control_wire::kSpec};
  Frame frame;  // the last one received
  std::string queue;
  std::size_t sent = 0;
  bool has_ended = false;         // nothing more is read
  bool is_output_closed = false;  // nothing more is accepted for sending
  bool is_output_shut = false;    // the peer was sent its end of file, or cannot be reached any more

  [[nodiscard]] std::size_t unsent() const { return queue.size() - sent; }
};

ControlChannel::ControlChannel(EventLoop& loop, std::optional<ShmBell> bell, Handlers handlers)
    : loop_(loop), bell_(bell), handlers_(std::move(handlers)) {}

ControlChannel::~ControlChannel() {
  for (const auto& link : links_) {
    loop_.unwatch(link->watch);
  }
}

Result<std::unique_ptr<ControlChannel>> ControlChannel::create(EventLoop& loop, const std::vector<Peer>& peers,
                                                               std::optional<ShmBell> bell, Handlers handlers) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(loop, bell, std::move(handlers)));
  for (const Peer& peer : peers) {
    HVD_CHECK(!peer.lane || bell);
    auto link = std::make_unique<Link>();
    link->rank = peer.rank;
    link->fd = peer.fd;
    link->lane = peer.lane;
    link->filter = peer.lane ? nullptr : peer.filter;
    Link* raw = link.get();
    channel->links_.push_back(std::move(link));
    HVD_TRY_ASSIGN(raw->watch, loop.watch(peer.fd, EPOLLIN, [channel = channel.get(), raw](std::uint32_t events) {
      channel->on_event(*raw, events);
    }));
  }
  return channel;
}

std::size_t ControlChannel::send(std::string_view frames) {
  for (const auto& link : links_) {
    send(*link, frames);
  }
  return links_.size();
}

std::size_t ControlChannel::send_to(const std::vector<int>& ranks, std::string_view frames) {
  std::size_t peers = 0;
  for (const auto& link : links_) {
    if (std::binary_search(ranks.begin(), ranks.end(), link->rank)) {
      send(*link, frames);
      ++peers;
    }
  }
  return peers;
}

std::size_t ControlChannel::send_to_idle(const std::vector<int>& ranks, std::string_view frames) {
  std::size_t peers = 0;
  for (const auto& link : links_) {
    if (link->unsent() == 0 && std::binary_search(ranks.begin(), ranks.end(), link->rank)) {
      send(*link, frames);
      ++peers;
    }
  }
  return peers;
}

void ControlChannel::send(Link& link, std::string_view frames) {
  if (link.is_output_closed) {
    return;
  }
  if (link.filter == nullptr) {
    link.queue.append(frames);
  } else if (const auto sealed = link.filter->seal(frames, link.queue); !sealed.ok()) {
    link.is_output_closed = true;
    if (!link.has_ended) {
      end(link, sealed.error().with_context(connection_with(link.rank)));
    }
  }
  flush(link);
}

void ControlChannel::close_output() {
  for (const auto& link : links_) {
    link->is_output_closed = true;
    flush(*link);
  }
}

bool ControlChannel::poll() {
  bool has_news = false;
  for (const auto& link : links_) {
    if (link->lane && !link->has_ended) {
      has_news = read_ring(*link) || has_news;
    }
    if (link->lane && link->unsent() > 0) {
      flush(*link);
    }
  }
  return has_news;
}

bool ControlChannel::sleep() {
  if (!bell_) {
    return true;
  }
  bell_->set();
  for (const auto& link : links_) {
    if (link->lane && link->unsent() > 0) {
      flush(*link);  // the peer may have made room before it could see the wake-up request
    }
    if (link->lane && !link->has_ended && (!link->lane->in.is_empty() || link->lane->in.has_ended())) {
      return false;
    }
  }
  return true;
}

void ControlChannel::stay_awake() {
  if (bell_) {
    bell_->clear();
  }
}

bool ControlChannel::needs_loop() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) { return !link->lane; });
}

bool ControlChannel::is_finished() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link->has_ended && link->is_output_shut; });
}

bool ControlChannel::have_all_ended() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return link->has_ended; });
}

void ControlChannel::on_event(Link& link, std::uint32_t events) {
  if (link.lane) {
    on_lane_event(link, events);
    return;
  }
  if ((events & static_cast<std::uint32_t>(EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
    flush(link);
  }
  if ((events & static_cast<std::uint32_t>(EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !link.has_ended) {
    read(link);
  }
}

// The peer wakes this rank, or is gone. What it wrote before it went is in the ring.
void ControlChannel::on_lane_event(Link& link, std::uint32_t events) {
  std::array<char, 64> wakes;  // NOLINT(cppcoreguidelines-pro-type-member-init): only counted
  ssize_t got = 0;
  do {
    got = ::recv(link.fd, wakes.data(), wakes.size(), 0);
  } while (got > 0 || (got < 0 && errno == EINTR));
  const bool is_gone = got == 0 || errno != EAGAIN;
  while (!link.has_ended && read_ring(link)) {
  }
  if ((events & static_cast<std::uint32_t>(EPOLLHUP | EPOLLERR)) != 0) {
    link.is_output_closed = true;
    link.is_output_shut = true;
    link.sent = link.queue.size();
  }
  if (is_gone && !link.has_ended) {
    end(link, closed(link.rank));
  }
  flush(link);
}

// Returns true if there was anything.
bool ControlChannel::read_ring(Link& link) {
  ShmRing& ring = link.lane->in;
  auto bytes = ring.readable();
  if (!bytes.ok()) {
    end(link, bytes.error().with_context("rank " + std::to_string(link.rank)));
    return false;
  }
  if (bytes.value().empty()) {
    if (ring.has_ended()) {
      end(link, closed(link.rank));
    }
    return false;
  }
  link.decoder.feed(bytes.value());
  ring.consume(bytes.value().size());
  if (ring.was_asked()) {
    ring_bell(link);
  }
  take_frames(link);
  return true;
}

void ControlChannel::read(Link& link) {
  std::array<std::uint8_t, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by recv
  for (std::size_t taken = 0; taken < kTurnBytes;) {
    const ssize_t got = ::recv(link.fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      taken += static_cast<std::size_t>(got);
      if (!take_in(link, Bytes(buffer.data(), static_cast<std::size_t>(got))) ||
          static_cast<std::size_t>(got) < buffer.size()) {
        return;
      }
    } else if (got == 0) {
      end(link, closed(link.rank));
      return;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      end(link, Error(Code::kLostPeer, Error::from_errno(connection_with(link.rank) + " broke").message()));
      return;
    }
  }
}

// Takes what the socket has received. Returns false if the link has ended.
bool ControlChannel::take_in(Link& link, Bytes bytes) {
  if (link.filter == nullptr) {
    link.decoder.feed(bytes);
    return take_frames(link);
  }
  link.filter->feed(bytes);
  for (;;) {
    const auto text = link.filter->next();
    if (!text.ok()) {
      end(link, Error(Code::kProtocol, connection_with(link.rank, "encrypted control") +
                                           " was changed on its way: " + text.error().message()));
      return false;
    }
    if (!text.value()) {
      return true;
    }
    link.decoder.feed(*text.value());
    if (!take_frames(link)) {
      return false;
    }
  }
}

// Returns false if the link has ended.
bool ControlChannel::take_frames(Link& link) {
  for (;;) {
    const auto is_whole = link.decoder.next(link.frame);
    if (!is_whole.ok()) {
      end(link, is_whole.error().with_context("rank " + std::to_string(link.rank)));
      return false;
    }
    if (!is_whole.value()) {
      return true;
    }
    handlers_.on_frame(link.rank, link.frame);
  }
}

void ControlChannel::end(Link& link, const Error& why) {
  link.has_ended = true;
  update_watch(link);
  handlers_.on_end(link.rank, why);
}

void ControlChannel::flush(Link& link) {
  const bool is_reachable = link.lane ? write_to_ring(link) : write_to_socket(link);
  if (!is_reachable) {
    // Do not report it here. What the peer still sent, perhaps why it is gone, is read first; its end of file then
    // reports the loss.
    link.is_output_closed = true;
    link.is_output_shut = true;
    link.sent = link.queue.size();
  }
  if (link.unsent() == 0) {
    link.queue.clear();
    link.sent = 0;
    if (link.is_output_closed && !link.is_output_shut) {
      link.is_output_shut = true;
      if (link.lane) {
        // the socket stays open: it still wakes the peer when there is room for the peer's data
        link.lane->out.close();
        ring_bell(link);
      } else {
        ::shutdown(link.fd, SHUT_WR);
      }
    }
  } else if (link.sent > kCompactBytes) {
    link.queue.erase(0, link.sent);
    link.sent = 0;
  }
  update_watch(link);
}

// Writes as much as there is room for. False: the peer cannot be reached any more.
bool ControlChannel::write_to_socket(Link& link) {
  while (link.unsent() > 0) {
    const ssize_t sent = ::send(link.fd, link.queue.data() + link.sent, link.unsent(), MSG_NOSIGNAL);
    if (sent >= 0) {
      link.sent += static_cast<std::size_t>(sent);
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

bool ControlChannel::write_to_ring(Link& link) {
  const std::size_t sent_before = link.sent;
  for (bool has_asked = false; link.unsent() > 0;) {
    const std::size_t taken = link.lane->out.write(std::string_view(link.queue).substr(link.sent));
    link.sent += taken;
    if (taken == 0 && has_asked) {
      break;
    }
    if (link.unsent() > 0) {
      link.lane->out.ask_for_room();  // then look again: the peer may have read before it could see the request
      has_asked = true;
    }
  }
  if (link.sent != sent_before) {
    ring_bell(link);
  }
  return true;
}

void ControlChannel::ring_bell(Link& link) {
  if (link.lane->bell.take()) {
    // If the socket is full, the peer has been woken often enough; if it is broken, its end of file reports that.
    [[maybe_unused]] const ssize_t sent = ::send(link.fd, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void ControlChannel::update_watch(Link& link) {
  if (link.has_ended && link.unsent() == 0) {
    // Hang-up is reported whether requested or not: a finished link that stays watched would keep the loop awake.
    loop_.unwatch(link.watch);
    link.watch = 0;
    return;
  }
  const std::uint32_t in = link.has_ended && !link.lane ? 0U : std::uint32_t{EPOLLIN};
  const std::uint32_t out = link.unsent() > 0 && !link.lane ? std::uint32_t{EPOLLOUT} : 0U;
  loop_.rewatch(link.watch, in | out);
}

}  // namespace hvd
