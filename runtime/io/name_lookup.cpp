#include "runtime/io/name_lookup.h"

#include <netdb.h>

namespace hvd {
namespace {

Code code_of(int gai) {
  switch (gai) {
    case EAI_NONAME:
    case EAI_NODATA:
      return Code::kNotFound;
    case EAI_AGAIN:
      return Code::kUnreachable;
    case EAI_MEMORY:
      return Code::kResource;
    default:
      return Code::kSystem;
  }
}

}  // namespace

Result<std::vector<SocketAddress>> look_up_name(const std::string& host, int port, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failed != 0) {
    return Error(code_of(failed), ::gai_strerror(failed));
  }
  std::vector<SocketAddress> addresses;
  std::string ip(NI_MAXHOST, '\0');
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (::getnameinfo(at->ai_addr, at->ai_addrlen, ip.data(), static_cast<socklen_t>(ip.size()), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
      continue;
    }
    auto address = SocketAddress::make(ip.c_str(), static_cast<std::uint16_t>(port));
    if (address.ok()) {
      addresses.push_back(address.value());
    }
  }
  ::freeaddrinfo(list);
  if (addresses.empty()) {
    return Error(Code::kNotFound, "no IPv4 or IPv6 address");
  }
  return addresses;
}

}  // namespace hvd
