// Turns a host's name into addresses by getaddrinfo, which blocks for as long as DNS likes. A program with a loop calls
// it on another thread (launcher/transport/resolver.h).
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/io/socket.h"

namespace hvd {

// `family` is AF_UNSPEC, AF_INET or AF_INET6; `flags` are getaddrinfo's AI_ ones. The error's message is getaddrinfo's
// own text; kNotFound: there is no such name, kUnreachable: ask again later.
Result<std::vector<SocketAddress>> look_up_name(const std::string& host, int port, int family, int flags);

}  // namespace hvd
