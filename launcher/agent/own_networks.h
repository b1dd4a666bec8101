// The addresses under which this machine may be reached by others, for a launcher whose way here shows none.
#pragma once

#include <string>
#include <vector>

namespace hvd::launch {

struct NamedNetwork {
  std::string interface;  // "eth0"
  std::string network;    // "10.0.0.1/24"
};

// Of interfaces that are up and running, IPv4 first; neither loopback nor link-local ones.
std::vector<NamedNetwork> own_named_networks();
// The same without the names.
std::vector<std::string> own_networks();

}  // namespace hvd::launch
