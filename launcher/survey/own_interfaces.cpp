#include "launcher/survey/own_interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "launcher/survey/own_networks.h"
#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), std::min(name.size(), sizeof request.ifr_name - 1));
  return request;
}

std::int32_t mtu_of(int socket, const std::string& name) {
  ifreq request = request_for(name);
  return ::ioctl(socket, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

// This is the old form of the question, for which the kernel translates new drivers' answers. ethtool(8) also uses it
// where the new form fails.
std::int32_t speed_of(int socket, const std::string& name) {
  ifreq request = request_for(name);
  ethtool_cmd command{};
  command.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) {
    return -1;
  }
  const std::uint32_t speed = ethtool_cmd_speed(&command);
  return speed == 0 || speed > INT32_MAX ? -1 : static_cast<std::int32_t>(speed);
}

}  // namespace

std::vector<InterfaceSurvey> own_interfaces() {
  std::vector<InterfaceSurvey> interfaces;
  for (const NamedNetwork& network : own_networks()) {
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&network](const InterfaceSurvey& known) { return known.name == network.interface; });
    if (found == interfaces.end()) {
      found = interfaces.insert(interfaces.end(), InterfaceSurvey{network.interface, {}, 0, -1});
    }
    found->addresses.push_back(network.network);
  }
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (InterfaceSurvey& interface : interfaces) {
    interface.mtu = mtu_of(socket.get(), interface.name);
    interface.speed_mbit = speed_of(socket.get(), interface.name);
  }
  return interfaces;
}

}  // namespace hvd::launch
