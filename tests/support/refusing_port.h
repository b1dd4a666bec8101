// RefusingPort: an address on loopback that refuses who calls. Its socket is bound and does not listen, so that nobody
// else is given the port meanwhile, as could be with one that was closed.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/io/socket.h"

namespace hvd {

class RefusingPort {
 public:
  RefusingPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress any_port = SocketAddress::make("127.0.0.1", 0).value();
    HVD_CHECK(::bind(socket_.get(), any_port.raw(), any_port.raw_size()) == 0);
    address_ = SocketAddress::local_of(socket_.get()).value();
  }
  [[nodiscard]] const SocketAddress& address() const { return address_; }
  [[nodiscard]] std::uint16_t port() const { return address_.port(); }
  [[nodiscard]] std::string text() const { return address_.text(); }

 private:
  Fd socket_;
  SocketAddress address_;
};

}  // namespace hvd
