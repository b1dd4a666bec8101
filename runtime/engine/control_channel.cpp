#include "runtime/engine/control_channel.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "runtime/controller/message.h"

namespace hvd {
namespace {

// Read at most this much of one rank in one turn, so that a busy one cannot starve the others.
constexpr std::size_t kTurnBytes = 256U << 10U;
constexpr std::size_t kReadBytes = 64U << 10U;
// Give sent memory back before the queue has to grow.
constexpr std::size_t kCompactBytes = 1U << 20U;

}  // namespace

struct ControlChannel::Link {
  int rank = 0;
  int fd = -1;
  WatchId watch = 0;
  FrameDecoder decoder{control_wire::kSpec};
  std::string queue;
  std::size_t sent = 0;
  bool has_ended = false;         // nothing more is read
  bool is_output_closed = false;  // nothing more is accepted for sending
  bool is_output_shut = false;    // the peer has been given its end of file, or cannot be reached any more

  [[nodiscard]] std::size_t unsent() const { return queue.size() - sent; }
};

ControlChannel::ControlChannel(EventLoop& loop, Handlers handlers) : loop_(loop), handlers_(std::move(handlers)) {}

ControlChannel::~ControlChannel() {
  for (const auto& link : links_) {
    loop_.unwatch(link->watch);
  }
}

Result<std::unique_ptr<ControlChannel>> ControlChannel::create(EventLoop& loop, const std::vector<Peer>& peers,
                                                               Handlers handlers) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(loop, std::move(handlers)));
  for (const Peer& peer : peers) {
    auto link = std::make_unique<Link>();
    link->rank = peer.rank;
    link->fd = peer.fd;
    Link* raw = link.get();
    channel->links_.push_back(std::move(link));
    HVD_TRY_ASSIGN(raw->watch, loop.watch(peer.fd, EPOLLIN, [channel = channel.get(), raw](std::uint32_t events) {
      channel->on_event(*raw, events);
    }));
  }
  return channel;
}

void ControlChannel::send(std::string_view frames) {
  for (const auto& link : links_) {
    if (link->is_output_closed) {
      continue;
    }
    link->queue.append(frames);
    flush(*link);
  }
}

void ControlChannel::close_output() {
  for (const auto& link : links_) {
    link->is_output_closed = true;
    flush(*link);
  }
}

bool ControlChannel::is_finished() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link->has_ended && link->is_output_shut; });
}

bool ControlChannel::have_all_ended() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return link->has_ended; });
}

void ControlChannel::on_event(Link& link, std::uint32_t events) {
  if ((events & static_cast<std::uint32_t>(EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
    flush(link);
  }
  if ((events & static_cast<std::uint32_t>(EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !link.has_ended) {
    read(link);
  }
}

void ControlChannel::read(Link& link) {
  std::array<std::uint8_t, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by recv
  for (std::size_t taken = 0; taken < kTurnBytes;) {
    const ssize_t got = ::recv(link.fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      taken += static_cast<std::size_t>(got);
      link.decoder.feed(Bytes(buffer.data(), static_cast<std::size_t>(got)));
      if (!take_frames(link) || static_cast<std::size_t>(got) < buffer.size()) {
        return;
      }
    } else if (got == 0) {
      end(link, Error(Code::kLostPeer, "the control connection of rank " + std::to_string(link.rank) + " was closed"));
      return;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      end(link,
          Error(Code::kLostPeer,
                Error::from_errno("the control connection of rank " + std::to_string(link.rank) + " broke").message()));
      return;
    }
  }
}

// False when the link has ended.
bool ControlChannel::take_frames(Link& link) {
  for (;;) {
    auto frame = link.decoder.next();
    if (!frame.ok()) {
      end(link, frame.error().with_context("rank " + std::to_string(link.rank)));
      return false;
    }
    if (!frame.value()) {
      return true;
    }
    handlers_.on_frame(link.rank, *frame.value());
  }
}

void ControlChannel::end(Link& link, const Error& why) {
  link.has_ended = true;
  update_watch(link);
  handlers_.on_end(link.rank, why);
}

void ControlChannel::flush(Link& link) {
  while (link.unsent() > 0) {
    const ssize_t sent = ::send(link.fd, link.queue.data() + link.sent, link.unsent(), MSG_NOSIGNAL);
    if (sent >= 0) {
      link.sent += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      if (link.sent > kCompactBytes) {
        link.queue.erase(0, link.sent);
        link.sent = 0;
      }
      break;
    } else if (errno != EINTR) {
      // Not told here: what the peer still sent, perhaps why it is gone, is read first; its end of file tells.
      link.is_output_closed = true;
      link.is_output_shut = true;
      link.sent = link.queue.size();
    }
  }
  if (link.unsent() == 0) {
    link.queue.clear();
    link.sent = 0;
    if (link.is_output_closed && !link.is_output_shut) {
      ::shutdown(link.fd, SHUT_WR);
      link.is_output_shut = true;
    }
  }
  update_watch(link);
}

void ControlChannel::update_watch(Link& link) {
  if (link.has_ended && link.unsent() == 0) {
    // Hang-up is reported whether asked for or not: a finished link that stays watched would keep the loop awake.
    loop_.unwatch(link.watch);
    link.watch = 0;
    return;
  }
  const std::uint32_t in = link.has_ended ? 0U : std::uint32_t{EPOLLIN};
  const std::uint32_t out = link.unsent() > 0 ? std::uint32_t{EPOLLOUT} : 0U;
  loop_.rewatch(link.watch, in | out);
}

}  // namespace hvd
