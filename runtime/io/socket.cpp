#include "runtime/io/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include <stdio.h>

#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd {
namespace {

// How long a peer's host may be silent before it counts as gone.
constexpr auto kSilence = std::chrono::seconds(14);
constexpr mode_t kOwnSocket = 0600;

Result<void> wait_for(int fd, short events, Deadline deadline, const char* what) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int ready = ::poll(&p, 1, deadline.poll_ms());
    if (ready > 0) {
      return {};
    }
    if (ready == 0) {
      return Error(Code::kTimeout, std::string(what) + " timed out");
    }
    if (errno != EINTR) {
      return Error::from_errno("poll");
    }
  }
}

Result<ucred> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Error::from_errno("getsockopt(SO_PEERCRED)");
  }
  return credentials;
}

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error(Code::kInvalid, "socket path is longer than " + std::to_string(sizeof address.sun_path - 1) +
                                     " bytes: " + path + "; set TMPDIR to a shorter directory");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Result<Fd> start_connect(int family, const sockaddr* address, socklen_t size, const std::string& what,
                         const std::function<Result<void>(int fd)>& prepare = {}) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) {
    return Error::from_errno("socket");
  }
  if (prepare) {
    HVD_TRY(prepare(fd.get()));
  }
  if (::connect(fd.get(), address, size) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Error::from_errno(what);
  }
  return fd;
}

Result<Fd> connect_to(int family, const sockaddr* address, socklen_t size, const std::string& text, Deadline deadline) {
  const std::string what = "connect to " + text;
  HVD_TRY_ASSIGN(Fd fd, start_connect(family, address, size, what));
  HVD_TRY(wait_for(fd.get(), POLLOUT, deadline, what.c_str()));
  HVD_TRY(finish_connect(fd.get(), what));
  return fd;
}

}  // namespace

Result<SocketAddress> SocketAddress::make(std::string_view ip, std::uint16_t port) {
  SocketAddress result;
  const std::string text(ip);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage_);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    result.size_ = sizeof(sockaddr_in);
    return result;
  }
  const auto percent = text.find('%');
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage_);
  if (::inet_pton(AF_INET6, text.substr(0, percent).c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    if (percent != std::string::npos) {
      v6->sin6_scope_id = ::if_nametoindex(text.substr(percent + 1).c_str());
    }
    result.size_ = sizeof(sockaddr_in6);
    return result;
  }
  return Error(Code::kInvalid, "not a numeric IPv4 or IPv6 address: '" + text + "'");
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  const std::string_view number = text.substr(colon == std::string_view::npos ? text.size() : colon + 1);
  const std::optional<std::uint16_t> port = parse_number<std::uint16_t>(number);
  if (!port) {
    return Error(Code::kInvalid, "not an address with a port: '" + std::string(text) + "'");
  }
  std::string_view ip = text.substr(0, colon);
  const bool has_brackets = ip.size() > 2 && ip.front() == '[' && ip.back() == ']';
  HVD_TRY_ASSIGN(const SocketAddress address, make(has_brackets ? ip.substr(1, ip.size() - 2) : ip, *port));
  if (has_brackets != (address.family() == AF_INET6)) {
    return Error(Code::kInvalid, "not an address with a port: '" + std::string(text) + "'");
  }
  return address;
}

Result<SocketAddress> SocketAddress::local_of(int fd) {
  SocketAddress result;
  result.size_ = sizeof result.storage_;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&result.storage_), &result.size_) != 0) {
    return Error::from_errno("getsockname");
  }
  return result;
}

Result<SocketAddress> SocketAddress::peer_of(int fd) {
  SocketAddress result;
  result.size_ = sizeof result.storage_;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&result.storage_), &result.size_) != 0) {
    return Error::from_errno("getpeername");
  }
  return result;
}

std::string SocketAddress::ip() const {
  std::array<char, INET6_ADDRSTRLEN + IF_NAMESIZE + 1> buffer{};
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    ::inet_ntop(AF_INET, &v4->sin_addr, buffer.data(), static_cast<socklen_t>(buffer.size()));
    return buffer.data();
  }
  if (family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, buffer.data(), static_cast<socklen_t>(buffer.size()));
    std::string text(buffer.data());
    std::array<char, IF_NAMESIZE> name{};
    if (v6->sin6_scope_id != 0 && ::if_indextoname(v6->sin6_scope_id, name.data()) != nullptr) {
      text += '%';
      text += name.data();
    }
    return text;
  }
  return "";
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  }
  if (family() == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  }
  return 0;
}

std::string SocketAddress::text() const {
  const std::string number = std::to_string(port());
  return family() == AF_INET6 ? "[" + ip() + "]:" + number : ip() + ":" + number;
}

Result<Fd> listen_tcp(const SocketAddress& address, int backlog) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) {
    return Error::from_errno("socket");
  }
  // A port that the user has chosen stays refused for a minute after its last connections have ended, without this.
  const int reuse = 1;
  if (address.port() != 0 && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0) {
    return Error::from_errno("setsockopt");
  }
  if (::bind(fd.get(), address.raw(), address.raw_size()) != 0) {
    return Error::from_errno("bind to " + address.text());
  }
  if (::listen(fd.get(), backlog) != 0) {
    return Error::from_errno("listen at " + address.text());
  }
  return fd;
}

Result<Fd> connect_tcp(const SocketAddress& address, Deadline deadline) {
  return connect_to(address.family(), address.raw(), address.raw_size(), address.text(), deadline);
}

Result<Fd> start_connect_tcp(const SocketAddress& address, const std::function<Result<void>(int fd)>& prepare) {
  return start_connect(address.family(), address.raw(), address.raw_size(), "connect to " + address.text(), prepare);
}

Result<void> finish_connect(int fd, const std::string& what) {
  int failed = 0;
  socklen_t length = sizeof failed;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length) != 0) {
    return Error::from_errno("getsockopt(SO_ERROR)");
  }
  if (failed != 0) {
    return Error::from_errno(what, failed);
  }
  return {};
}

Result<void> limit_unanswered(int fd) {
  const auto ms = static_cast<unsigned>(std::chrono::milliseconds(kSilence).count());
  return ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) == 0 ? Result<void>()
                                                                              : Error::from_errno("setsockopt");
}

bool is_unanswered(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return false;
  }
  // Probes to a peer without room for more data count only if they are not answered either.
  static constexpr unsigned kProbes = 3;
  const bool awaits_answer = info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes;
  return awaits_answer && info.tcpi_last_ack_recv > std::chrono::milliseconds(kSilence).count();
}

Result<void> tune_tcp(int fd) {
  const auto set = [fd](int level, int option, int value) {
    return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
  };
  // A dead host is noticed after 5 s of silence and 3 unanswered probes at intervals of 3 s: kSilence.
  if (!set(IPPROTO_TCP, TCP_NODELAY, 1) || !set(SOL_SOCKET, SO_KEEPALIVE, 1) || !set(IPPROTO_TCP, TCP_KEEPIDLE, 5) ||
      !set(IPPROTO_TCP, TCP_KEEPINTVL, 3) || !set(IPPROTO_TCP, TCP_KEEPCNT, 3)) {
    return Error::from_errno("setsockopt");
  }
  return {};
}

namespace {

constexpr std::size_t kMostCongestionName = 16;  // TCP_CA_NAME_MAX, with the terminating zero

// Returns an empty name for a socket that is not TCP.
std::string congestion_of(int fd) {
  std::array<char, kMostCongestionName + 1> name{};
  socklen_t size = name.size() - 1;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0 ? name.data() : "";
}

bool set_congestion(int fd, std::string_view name) {
  if (name.size() >= kMostCongestionName) {
    errno = ENOENT;  // the kernel would use the beginning of the name
    return false;
  }
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

bool is_bbr(const std::string& name) {
  return name.starts_with("bbr");
}

}  // namespace

Result<void> choose_congestion(int fd, const std::string& name) {
  const std::string now = congestion_of(fd);
  if (name.empty()) {
    if (is_bbr(now) && !set_congestion(fd, "cubic")) {
      set_congestion(fd, "reno");  // every user may choose this one
    }
  } else if (!now.empty() && !set_congestion(fd, name)) {
    return Error(Code::kInvalid,
                 std::string(contract::kTcpCongestion) + " is '" + name +
                     "', which is not to be had here: " + Error::from_errno("setsockopt(TCP_CONGESTION)").message() +
                     "; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists those that are");
  }
  return {};
}

void settle_congestion(int fd) {
  static constexpr unsigned kNearUs = 1000;  // the longest round trip within a cluster
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_rtt < kNearUs) {
    return;
  }
  const Fd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (const std::string own = congestion_of(fresh.get()); is_bbr(own)) {
    set_congestion(fd, own);
  }
}

Result<Fd> listen_unix(const std::string& path, int backlog) {
  HVD_TRY_ASSIGN(const sockaddr_un address, unix_address(path));
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) {
    return Error::from_errno("socket");
  }
  // Linux makes the file with the rights that the socket has (bind in unix(7) tells only of the umask).
  if (::fchmod(fd.get(), kOwnSocket) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error::from_errno("bind to " + path);
  }
  if (::listen(fd.get(), backlog) != 0) {
    return Error::from_errno("listen at " + path);
  }
  return fd;
}

Result<Fd> replace_unix_listener(const std::string& path) {
  const std::string unseen = path + ".new";
  ::unlink(unseen.c_str());  // a process that was killed may have left it
  HVD_TRY_ASSIGN(Fd listener, listen_unix(unseen));
  if (::rename(unseen.c_str(), path.c_str()) != 0) {
    const Error why = Error::from_errno("cannot listen at " + path);
    ::unlink(unseen.c_str());
    return why;
  }
  return listener;
}

Result<Fd> connect_unix(const std::string& path, Deadline deadline) {
  HVD_TRY_ASSIGN(const sockaddr_un address, unix_address(path));
  for (;;) {
    auto fd = connect_to(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address, path, deadline);
    // If the backlog of a unix socket is full, it answers EAGAIN at once instead of making the caller wait.
    if (fd.ok() || fd.error().sys_errno() != EAGAIN || deadline.has_passed()) {
      return fd;
    }
    ::poll(nullptr, 0, 1);
  }
}

Result<uid_t> peer_uid(int fd) {
  HVD_TRY_ASSIGN(const ucred peer, peer_of(fd));
  return peer.uid;
}

Result<pid_t> peer_pid(int fd) {
  HVD_TRY_ASSIGN(const ucred peer, peer_of(fd));
  return peer.pid;
}

bool is_peer_trusted(int fd) {
  const auto uid = peer_uid(fd);
  return uid.ok() && (uid.value() == ::geteuid() || uid.value() == 0);
}

Result<Fd> accept_ready(int listener) {
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      return Fd(fd);
    }
    if (errno == EAGAIN) {
      return Fd();
    }
    // If a connection died while it waited, that is no error of the listener (accept(2)).
    if (errno != EINTR && errno != ECONNABORTED) {
      return Error::from_errno("accept");
    }
  }
}

Result<Fd> accept_one(int listener, Deadline deadline) {
  for (;;) {
    HVD_TRY_ASSIGN(Fd fd, accept_ready(listener));
    if (fd.is_open()) {
      return fd;
    }
    HVD_TRY(wait_for(listener, POLLIN, deadline, "accept"));
  }
}

Result<void> send_all(int fd, Bytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      HVD_TRY(wait_for(fd, POLLOUT, deadline, "send"));
    } else if (errno != EINTR) {
      return Error::from_errno("send");
    }
  }
  return {};
}

Result<void> recv_exact(int fd, MutableBytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Error(Code::kLostPeer, "the peer closed the connection");
    } else if (errno == EAGAIN) {
      HVD_TRY(wait_for(fd, POLLIN, deadline, "receive"));
    } else if (errno != EINTR) {
      return Error::from_errno("recv");
    }
  }
  return {};
}

Result<std::vector<std::string>> interface_ips() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return Error::from_errno("getifaddrs");
  }
  std::vector<std::string> ips;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const bool is_usable =
        at->ifa_addr != nullptr && (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_usable) {
      continue;
    }
    std::array<char, INET6_ADDRSTRLEN> buffer{};
    if (at->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, buffer.data(), static_cast<socklen_t>(buffer.size()));
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
        continue;
      }
      ::inet_ntop(AF_INET6, &v6->sin6_addr, buffer.data(), static_cast<socklen_t>(buffer.size()));
    } else {
      continue;
    }
    ips.emplace_back(buffer.data());
  }
  ::freeifaddrs(list);
  return ips;
}

}  // namespace hvd
