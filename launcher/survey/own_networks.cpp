#include "launcher/survey/own_networks.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace hvd::launch {
namespace {

std::span<const std::uint8_t> address_bytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const std::uint8_t*>(&v4->sin_addr), sizeof v4->sin_addr};
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return {reinterpret_cast<const std::uint8_t*>(&v6->sin6_addr), sizeof v6->sin6_addr};
}

// An interface without carrier (an unused bridge of a container engine) is up, but not running.
bool is_usable(const ifaddrs& entry) {
  const bool is_ip =
      entry.ifa_addr != nullptr && (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6);
  const unsigned wanted = IFF_UP | IFF_RUNNING;
  if (!is_ip || entry.ifa_netmask == nullptr || (entry.ifa_flags & (wanted | IFF_LOOPBACK)) != wanted) {
    return false;
  }
  const auto bytes = address_bytes(entry.ifa_addr);
  const bool is_link_local_v4 = bytes.size() == 4 && bytes[0] == 169 && bytes[1] == 254;
  const bool is_link_local_v6 = bytes.size() == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
  return !is_link_local_v4 && !is_link_local_v6;
}

std::string address_text(const ifaddrs& entry) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(entry.ifa_addr->sa_family, address_bytes(entry.ifa_addr).data(), text.data(),
              static_cast<socklen_t>(text.size()));
  return text.data();
}

std::string network_text(const ifaddrs& entry) {
  int prefix = 0;
  // The kernel may leave out the mask's own family; its bytes lie where the address's do.
  sockaddr_in6 mask{};
  std::copy_n(reinterpret_cast<const std::uint8_t*>(entry.ifa_netmask),
              entry.ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6),
              reinterpret_cast<std::uint8_t*>(&mask));
  mask.sin6_family = entry.ifa_addr->sa_family;
  for (const std::uint8_t byte : address_bytes(reinterpret_cast<const sockaddr*>(&mask))) {
    prefix += std::popcount(byte);
  }
  return address_text(entry) + "/" + std::to_string(prefix);
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return addresses;
  }
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr != nullptr && (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6)) {
      addresses.push_back(address_text(*at));
    }
  }
  ::freeifaddrs(list);
  return addresses;
}

std::vector<NamedNetwork> own_networks() {
  std::vector<NamedNetwork> networks;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return networks;
  }
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
      if (is_usable(*at) && at->ifa_addr->sa_family == family) {
        networks.push_back(NamedNetwork{at->ifa_name, network_text(*at)});
      }
    }
  }
  ::freeifaddrs(list);
  return networks;
}

}  // namespace hvd::launch
