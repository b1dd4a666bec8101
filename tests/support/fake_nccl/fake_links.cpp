#include "tests/support/fake_nccl/fake_links.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>

#include "runtime/base/check.h"

namespace hvd::fake {
namespace {

constexpr int kRetryMs = 1;

std::size_t fill_address(sockaddr_un& address, const std::string& name) {
  address.sun_family = AF_UNIX;
  HVD_CHECK(name.size() + 1 < sizeof address.sun_path);
  std::memcpy(&address.sun_path[1], name.data(), name.size());  // the first byte stays 0: no file
  return offsetof(sockaddr_un, sun_path) + 1 + name.size();
}

Fd make_socket() {
  Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  HVD_CHECK(made.is_open());
  return made;
}

}  // namespace

// What is left to be sent to, or received from, one rank: each part with its size before it.
struct Links::Flow {
  int fd = -1;
  bool is_sent = false;
  std::deque<Part> parts{};
  std::uint64_t size = 0;  // of the first part, as it travels
  std::size_t done = 0;    // of the first part, its size included
};

Links::Links(int rank, int size)
    : rank_(rank), size_(size), peers_(static_cast<std::size_t>(size)), abort_event_(::eventfd(0, EFD_CLOEXEC)) {
  HVD_CHECK(abort_event_.is_open());
}

void Links::abort() {
  const std::uint64_t one = 1;
  HVD_CHECK(::write(abort_event_.get(), &one, sizeof one) == sizeof one);
}

bool Links::is_aborted(int wait_ms) const {
  pollfd event{abort_event_.get(), POLLIN, 0};
  return ::poll(&event, 1, wait_ms) > 0;
}

void Links::wait_for_abort() {
  while (!is_aborted(-1)) {
  }
}

Fd Links::listen(const std::string& name) const {
  Fd made = make_socket();
  sockaddr_un address{};
  const auto length = static_cast<socklen_t>(fill_address(address, name + "-" + std::to_string(rank_)));
  HVD_CHECK(::bind(made.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  HVD_CHECK(::listen(made.get(), size_) == 0);
  return made;
}

// Not open: it does not listen yet.
Fd Links::call(const std::string& name) const {
  Fd made = make_socket();
  sockaddr_un address{};
  const auto length = static_cast<socklen_t>(fill_address(address, name));
  return ::connect(made.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 ? std::move(made) : Fd();
}

Links::End Links::connect(const std::string& name, void (*half_come)()) {
  const Fd listener = listen(name);
  for (int peer = 0; peer < rank_; ++peer) {
    Fd& link = peers_[static_cast<std::size_t>(peer)];
    // It may not be there yet, or be gone again.
    while (!(link = call(name + "-" + std::to_string(peer))).is_open() ||
           ::send(link.get(), &rank_, sizeof rank_, MSG_NOSIGNAL) != sizeof rank_) {
      if (is_aborted(kRetryMs)) {
        return End::kAborted;
      }
    }
  }
  if (half_come != nullptr) {
    half_come();
  }
  for (int missing = size_ - 1 - rank_; missing > 0;) {
    Fd link(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!link.is_open()) {
      if (is_aborted(kRetryMs)) {
        return End::kAborted;
      }
      continue;
    }
    int peer = -1;
    if (::recv(link.get(), &peer, sizeof peer, MSG_WAITALL) != sizeof peer) {
      continue;  // it has gone again
    }
    HVD_CHECK(::fcntl(link.get(), F_SETFL, O_NONBLOCK) == 0);
    peers_[static_cast<std::size_t>(peer)] = std::move(link);
    --missing;
  }
  return End::kDone;
}

// As much as goes at once.
Links::End Links::step(std::vector<Flow>& flows, std::size_t& sent_bytes) {
  for (Flow& flow : flows) {
    while (!flow.parts.empty()) {
      const Part& part = flow.parts.front();
      const bool is_head = flow.done < sizeof flow.size;
      if (flow.is_sent && flow.done == 0) {
        flow.size = part.bytes;
      }
      auto* at = is_head ? reinterpret_cast<std::uint8_t*>(&flow.size) + flow.done
                         : static_cast<std::uint8_t*>(part.data) + (flow.done - sizeof flow.size);
      const std::size_t left = (is_head ? 0 : part.bytes) + sizeof flow.size - flow.done;
      if (left > 0) {
        const ssize_t moved = flow.is_sent ? ::send(flow.fd, at, left, MSG_NOSIGNAL) : ::recv(flow.fd, at, left, 0);
        if (moved <= 0) {
          if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
          }
          return End::kLost;
        }
        flow.done += static_cast<std::size_t>(moved);
        sent_bytes += flow.is_sent ? static_cast<std::size_t>(moved) : 0;
      }
      if (flow.done == sizeof flow.size && flow.size != part.bytes) {
        return End::kMismatch;
      }
      if (flow.done == sizeof flow.size + part.bytes) {
        flow.parts.pop_front();
        flow.done = 0;
      }
    }
  }
  return End::kDone;
}

Links::End Links::move(std::vector<Part> sent, std::vector<Part> received, void (*half_sent)()) {
  std::vector<Flow> flows;
  std::size_t to_send = 0;
  std::size_t sent_bytes = 0;
  for (int peer = 0; peer < size_; ++peer) {
    Flow out{peers_[static_cast<std::size_t>(peer)].get(), true};
    Flow in{out.fd, false};
    for (const Part& part : sent) {
      if (part.peer == peer) {
        out.parts.push_back(part);
        to_send += peer == rank_ ? 0 : part.bytes;
      }
    }
    for (const Part& part : received) {
      if (part.peer == peer) {
        in.parts.push_back(part);
      }
    }
    if (peer == rank_) {
      if (out.parts.size() != in.parts.size()) {
        return End::kMismatch;
      }
      for (std::size_t i = 0; i < out.parts.size(); ++i) {
        if (out.parts[i].bytes != in.parts[i].bytes) {
          return End::kMismatch;
        }
        std::memmove(in.parts[i].data, out.parts[i].data, in.parts[i].bytes);
      }
      continue;
    }
    flows.push_back(std::move(out));
    flows.push_back(std::move(in));
  }
  for (;;) {
    if (const End end = step(flows, sent_bytes); end != End::kDone) {
      return end;
    }
    if (half_sent != nullptr && sent_bytes >= to_send / 2) {
      half_sent();
      half_sent = nullptr;
    }
    std::vector<pollfd> waits = {{abort_event_.get(), POLLIN, 0}};
    for (const Flow& flow : flows) {
      if (!flow.parts.empty()) {
        waits.push_back({flow.fd, static_cast<short>(flow.is_sent ? POLLOUT : POLLIN), 0});
      }
    }
    if (waits.size() == 1) {
      return End::kDone;
    }
    ::poll(waits.data(), waits.size(), -1);
    if (is_aborted(0)) {
      return End::kAborted;
    }
  }
}

Links::End Links::gather(const void* data, std::size_t bytes, std::vector<std::vector<std::uint8_t>>& all,
                         void (*half_sent)()) {
  all.assign(static_cast<std::size_t>(size_), std::vector<std::uint8_t>(bytes));
  std::vector<Part> sent;
  std::vector<Part> received;
  for (int peer = 0; peer < size_; ++peer) {
    sent.push_back({peer, const_cast<void*>(data), bytes});
    received.push_back({peer, all[static_cast<std::size_t>(peer)].data(), bytes});
  }
  return move(std::move(sent), std::move(received), half_sent);
}

}  // namespace hvd::fake
