// Stream sockets with deadlines, for numeric addresses; names are resolved elsewhere.
//
// Thread: any. The blocking helpers (connect_*, send_all, recv_exact, accept_one) wait by poll(2) on a non-blocking
// descriptor until their deadline. Every Fd that this file returns is non-blocking and close-on-exec.
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

// SocketAddress is an IPv4 or IPv6 address with a port; as text "10.0.0.1:5000" or "[fe80::1%eth0]:5000".
class SocketAddress {
 public:
  SocketAddress() = default;
  // `ip` is numeric; an IPv6 scope may follow as %name.
  static Result<SocketAddress> make(std::string_view ip, std::uint16_t port);
  // Reads the form that text() returns.
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
// The two halves of connect_tcp, for many connections at once: the socket becomes writable when the attempt has ended,
// and finish_connect returns the outcome. `prepare` is called with the socket before it connects.
Result<Fd> start_connect_tcp(const SocketAddress& address, const std::function<Result<void>(int fd)>& prepare = {});
Result<void> finish_connect(int fd, const std::string& what);
// Sets TCP_NODELAY, and keep-alive probes, by which a peer whose host is gone is noticed in about 15 s.
Result<void> tune_tcp(int fd);
// Chooses TCP's congestion control for connections that carry much data between hosts of a cluster. Call it before the
// socket connects, or while it listens (accepted connections inherit it). `name` is the value of HVD_TCP_CONGESTION, or
// "" for the system's default, unless that is BBR. BBR sends by a timer, with an interrupt for every few segments, and
// reduces its rate for a while every 10 s. Between near hosts it took 1.2 to 1.35 times as long for 1 MiB and more. A
// connection that has begun with BBR keeps the timer. It does nothing for a socket that is not TCP. kInvalid quotes the
// name and the system's error.
Result<void> choose_congestion(int fd, const std::string& name);
// For a connection that was made with "": if the other host turns out to be far away, where BBR is useful, it switches
// to BBR after all if that is the system's default.
void settle_congestion(int fd);
// Keep-alive probes are sent only while no data is unacknowledged; unacknowledged data is repeated by the kernel for a
// quarter of an hour. The next two functions limit that to the same 14 s.
//
// limit_unanswered() is for a connection of short messages (TCP_USER_TIMEOUT). It also ends the connection if the peer
// takes no data for so long although its host answers.
Result<void> limit_unanswered(int fd);
// is_unanswered() is for a connection that a peer may leave unread for as long as it likes. It returns whether the
// peer's host has answered nothing for so long that it must be gone; false for a socket that is not TCP.
bool is_unanswered(int fd);

// A path that is longer than sun_path allows is refused; the error names it. Only the owner may connect, from the first
// moment on.
Result<Fd> listen_unix(const std::string& path, int backlog = 128);
// The same at a name beside the path, which is then renamed: nobody finds a socket that does not listen yet. What was
// at the path is gone.
Result<Fd> replace_unix_listener(const std::string& path);
Result<Fd> connect_unix(const std::string& path, Deadline deadline);
// Returns the user id of the process at the other end of a unix socket.
Result<uid_t> peer_uid(int fd);
// Returns its process id.
Result<pid_t> peer_pid(int fd);
// Whether it is this user's, or root's, who may do anything anyway, as in a container.
bool is_peer_trusted(int fd);

// Returns the next connection, or a timeout.
Result<Fd> accept_one(int listener, Deadline deadline);
// Returns the next connection if one waits, otherwise an Fd that is not open. For use in a loop.
Result<Fd> accept_ready(int listener);

Result<void> send_all(int fd, Bytes bytes, Deadline deadline);
// Fills all of `bytes`; an end of file before that is kLostPeer.
Result<void> recv_exact(int fd, MutableBytes bytes, Deadline deadline);

// Returns the addresses of this machine's interfaces that are up, without loopback.
Result<std::vector<std::string>> interface_ips();

}  // namespace hvd
