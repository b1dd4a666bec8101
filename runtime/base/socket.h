// Stream sockets with deadlines: numeric addresses in, Fd out. Name resolution is not done here.
//
// Thread: any. The blocking helpers (connect_*, send_all, recv_exact, accept_one) wait by poll(2) until their deadline
// on a non-blocking descriptor; every Fd that this file returns is non-blocking and close-on-exec.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

// An IPv4 or IPv6 address with a port. "10.0.0.1:5000" or "[fe80::1%eth0]:5000" as text.
class SocketAddress {
 public:
  SocketAddress() = default;
  // `ip` is numeric; an IPv6 scope may follow as %name.
  static Result<SocketAddress> make(std::string_view ip, std::uint16_t port);
  // What text() gives.
  static Result<SocketAddress> parse(std::string_view text);
  static Result<SocketAddress> local_of(int fd);
  static Result<SocketAddress> peer_of(int fd);

  [[nodiscard]] std::string ip() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t raw_size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// Listens at `address` (port 0: any free one; ask SocketAddress::local_of).
Result<Fd> listen_tcp(const SocketAddress& address, int backlog = 128);
Result<Fd> connect_tcp(const SocketAddress& address, Deadline deadline);
// Its two halves, for many connections at once: the socket becomes writable when the attempt has ended, and
// finish_connect tells how. `prepare` is asked first, with the socket.
Result<Fd> start_connect_tcp(const SocketAddress& address, const std::function<Result<void>(int fd)>& prepare = {});
Result<void> finish_connect(int fd, const std::string& what);
// TCP_NODELAY on, and keep-alive probes so that a peer whose host is gone is noticed in about 15 s.
Result<void> tune_tcp(int fd);
// TCP's congestion control, for connections that carry much between the hosts of a cluster; before the socket connects,
// or when it listens (what it accepts is then alike): `name`, which is HVD_TCP_CONGESTION's, or "" for the system's
// unless that is BBR. That sends by a timer, with an interrupt for every few segments, and gives way for a while every
// 10 s: between near hosts it took 1.2 to 1.35 times as long for 1 MiB and more. A connection that has begun with BBR
// keeps the timer. Nothing where it is no TCP socket. kInvalid: the name, and what this system says of it.
Result<void> choose_congestion(int fd, const std::string& name);
// For a connection that was made with "": if the other host turns out to be far, where BBR has its use, it is used
// after all if it is the system's way.
void settle_congestion(int fd);
// Keep-alive probes are sent only while nothing else is on its way: what is sent and never acknowledged is repeated by
// the kernel for a quarter of an hour. These two bound that by the same 14 s.
//
// For a connection of short messages (TCP_USER_TIMEOUT): also a peer that takes nothing for so long, though its host
// answers, ends it.
Result<void> limit_unanswered(int fd);
// For one that a peer may leave unread for as long as it likes: whether its host has answered nothing for so long that
// it must be taken for gone. False for what is no TCP connection.
bool is_unanswered(int fd);

// A path longer than sun_path allows is refused by name.
Result<Fd> listen_unix(const std::string& path, int backlog = 128);
Result<Fd> connect_unix(const std::string& path, Deadline deadline);
// The user id of the process at the other end of a unix socket.
Result<uid_t> peer_uid(int fd);
// Its process id.
Result<pid_t> peer_pid(int fd);

// The next connection, or a timeout.
Result<Fd> accept_one(int listener, Deadline deadline);
// The next connection if one is waiting, else an Fd that is not open. For use in a loop.
Result<Fd> accept_ready(int listener);

Result<void> send_all(int fd, Bytes bytes, Deadline deadline);
// Fills all of `bytes`; an end of file before that is kLostPeer.
Result<void> recv_exact(int fd, MutableBytes bytes, Deadline deadline);

// Addresses of this machine's interfaces that are up, loopback left out.
Result<std::vector<std::string>> interface_ips();

}  // namespace hvd
