// SilentPort: an address that answers no connection, as a host behind a firewall that drops packets.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/io/socket.h"

namespace hvd::test {

// Linux drops connection requests for a listener whose queue is full, and nobody takes anything from this one's.
class SilentPort {
 public:
  explicit SilentPort(const std::string& ip = "127.0.0.1")
      : listener_(listen_tcp(SocketAddress::make(ip, 0).value(), 0).value()),
        address_(SocketAddress::local_of(listener_.get()).value()),
        only_(start_connect_tcp(address_).value()) {
    pollfd queue{listener_.get(), POLLIN, 0};
    HVD_CHECK(::poll(&queue, 1, 300'000) == 1);  // a queue of length 0 holds one
  }
  [[nodiscard]] const SocketAddress& address() const { return address_; }
  [[nodiscard]] std::string port() const { return std::to_string(address_.port()); }

 private:
  Fd listener_;
  SocketAddress address_;
  Fd only_;
};

}  // namespace hvd::test
