#include "launcher/sessions/node_addresses.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kLoopbackInterface = "lo";  // agents do not report it

struct Network {
  std::string interface{};
  std::string ip{};
  std::array<std::uint8_t, 16> bytes{};
  unsigned size_bits = 0;  // 32 or 128
  unsigned prefix = 0;
};

// Parses "10.0.0.1" as a network of one address. The text comes from a node, so anything else is ignored rather than
// trusted.
std::optional<Network> parse_address(const std::string& text) {
  Network network;
  network.ip = text;
  const bool is_v4 = ::inet_pton(AF_INET, network.ip.c_str(), network.bytes.data()) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, network.ip.c_str(), network.bytes.data()) != 1) {
    return std::nullopt;
  }
  network.size_bits = is_v4 ? 32 : 128;
  network.prefix = network.size_bits;
  return network;
}

// Parses "10.0.0.1/24", likewise.
std::optional<Network> parse_network(const std::string& text) {
  const auto slash = text.find('/');
  std::optional<Network> network = parse_address(text.substr(0, slash));
  if (!network || slash == std::string::npos) {
    return std::nullopt;
  }
  const std::optional<unsigned> bits = parse_number<unsigned>(text.substr(slash + 1), 0, network->size_bits);
  if (!bits) {
    return std::nullopt;
  }
  network->prefix = *bits;
  return network;
}

// An address that is good for one interface alone ("fe80::1%eth0") has this machine's name for that, and says nothing
// to other nodes.
bool is_link_local(const std::string& text) {
  const std::optional<Network> address = parse_address(text.substr(0, text.find('%')));
  return address && address->size_bits == 128 && address->bytes[0] == 0xfe && (address->bytes[1] & 0xc0U) == 0x80;
}

// Returns an address that one end of a connection has; empty: there is none that other nodes could use.
std::string seen(const std::string& address) {
  return is_link_local(address) ? "" : address;
}

std::vector<Network> networks_of(const NodeView& view) {
  std::vector<Network> networks;
  for (const NamedNetwork& named : view.ready.networks) {
    if (auto network = parse_network(named.network)) {
      network->interface = named.interface;
      networks.push_back(std::move(*network));
    }
  }
  return networks;
}

bool are_neighbours(const Network& a, const Network& b) {
  if (a.size_bits != b.size_bits) {
    return false;
  }
  const unsigned prefix = std::max(a.prefix, b.prefix);
  for (unsigned bit = 0; bit < prefix; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
    if (((a.bytes[bit / 8] ^ b.bytes[bit / 8]) & mask) != 0) {
      return false;
    }
  }
  return true;
}

// Counts the other nodes that are neighbours of the address. An address that another node has as well (the bridge of a
// container engine is 172.17.0.1 everywhere) leads to none of them and scores 0.
int score(const Network& candidate, std::size_t own, const std::vector<std::vector<Network>>& nodes) {
  int neighbours = 0;
  bool is_shared = false;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (node == own) {
      continue;
    }
    const auto& others = nodes[node];
    if (std::any_of(others.begin(), others.end(), [&](const Network& n) { return n.ip == candidate.ip; })) {
      is_shared = true;
    } else if (std::any_of(others.begin(), others.end(),
                           [&](const Network& n) { return are_neighbours(n, candidate); })) {
      ++neighbours;
    }
  }
  return 2 * neighbours + (is_shared ? 0 : 1);
}

// Returns the address that the node's name resolves to, if the node has it; else nothing.
std::string named_own(const NodeView& view, const std::vector<Network>& candidates) {
  for (const std::string& named : view.opened.named_addresses) {
    if (std::any_of(candidates.begin(), candidates.end(), [&](const Network& n) { return n.ip == named; })) {
      return named;
    }
  }
  return "";
}

std::string pick_own(const NodeView& view, std::size_t own, const std::vector<std::vector<Network>>& nodes,
                     bool may_join) {
  const std::vector<Network>& candidates = nodes[own];
  if (const std::string named = named_own(view, candidates); !named.empty()) {
    return named;
  }
  if (nodes.size() == 1 && !may_join) {
    return kLoopback;
  }
  const auto best = std::max_element(candidates.begin(), candidates.end(), [&](const Network& a, const Network& b) {
    return score(a, own, nodes) < score(b, own, nodes);
  });
  return best == candidates.end() ? kLoopback : best->ip;
}

// Returns the node's address on the first of the interfaces that it has; of several there, the one with most
// neighbours.
std::string pick_chosen(const std::vector<std::string>& interfaces, std::size_t own,
                        const std::vector<std::vector<Network>>& nodes) {
  for (const std::string& interface : interfaces) {
    if (interface == kLoopbackInterface) {
      return kLoopback;
    }
    const Network* best = nullptr;
    for (const Network& candidate : nodes[own]) {
      if (candidate.interface == interface &&
          (best == nullptr || score(candidate, own, nodes) > score(*best, own, nodes))) {
        best = &candidate;
      }
    }
    if (best != nullptr) {
      return best->ip;
    }
  }
  return "";
}

}  // namespace

std::string missing_interface(const NodeView& view, const std::string& name,
                              const std::vector<std::string>& interfaces) {
  const std::vector<std::vector<Network>> own = {networks_of(view)};
  if (interfaces.empty() || !pick_chosen(interfaces, 0, own).empty()) {
    return "";
  }
  std::string wanted;
  for (const std::string& interface : interfaces) {
    wanted += (wanted.empty() ? "" : " or ") + interface;
  }
  std::string has;
  for (const NamedNetwork& network : view.ready.networks) {
    add_to_list(has, network.interface + " (" + network.network + ")");
  }
  return name + " has no interface " + wanted + " that is up with an address (--network-interfaces); it has " +
         (has.empty() ? "only loopback, lo" : has);
}

bool is_translated(const NodeView& view) {
  const std::optional<Network> reached = parse_address(view.opened.node_address);
  const std::vector<std::string>& own = view.ready.addresses;
  return reached && !own.empty() && std::none_of(own.begin(), own.end(), [&](const std::string& text) {
           const std::optional<Network> address = parse_address(text);
           return address && address->size_bits == reached->size_bits && address->bytes == reached->bytes;
         });
}

std::string interface_of(const NodeView& view, const std::string& address) {
  for (const Network& network : networks_of(view)) {
    if (network.ip == address) {
      return network.interface;
    }
  }
  return address == kLoopback ? kLoopbackInterface : "";
}

std::vector<std::string> data_addresses(const std::vector<NodeView>& views, const std::vector<std::string>& interfaces,
                                        bool may_join) {
  std::string launcher;
  std::vector<std::vector<Network>> nodes;
  for (const NodeView& view : views) {
    launcher = launcher.empty() ? seen(view.opened.launcher_address) : launcher;
    nodes.push_back(networks_of(view));
  }
  std::vector<std::string> addresses;
  for (std::size_t node = 0; node < views.size(); ++node) {
    const Opened& opened = views[node].opened;
    if (const std::string chosen = pick_chosen(interfaces, node, nodes); !chosen.empty()) {
      addresses.push_back(chosen);
    } else if (const std::string reached = seen(opened.node_address); !reached.empty() && !is_translated(views[node])) {
      addresses.push_back(reached);
    } else if (opened.is_local && !launcher.empty()) {
      addresses.push_back(launcher);
    } else {
      addresses.push_back(pick_own(views[node], node, nodes, may_join));
    }
  }
  return addresses;
}

}  // namespace hvd::launch
