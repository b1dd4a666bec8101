// These functions choose the addresses at which the nodes of a job reach each other. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"

namespace hvd::launch {

// NodeView is what one node's session has learned about it.
struct NodeView {
  Opened opened;
  ReadyMessage ready;
};

// Returns one address per node: the one under which the launcher reached it; for the local node, the launcher's own
// address towards the others. Where no connection shows one (an rsh command), or one that the node does not have itself
// (behind address translation), it is one of the node's own addresses.
// That is the one its host name resolves to, else one in a network that other nodes share; loopback for a node that is
// alone, unless others `may_join` it. `interfaces` are those that the user allows, the best first. A node that has none
// of them is treated as if there were no choice: missing_interface() is what refuses it.
std::vector<std::string> data_addresses(const std::vector<NodeView>& views,
                                        const std::vector<std::string>& interfaces = {}, bool may_join = false);

// Says why the node called `name` cannot be reached on any of these interfaces; empty: it can, or none are asked for.
std::string missing_interface(const NodeView& view, const std::string& name,
                              const std::vector<std::string>& interfaces);

// Returns whether the launcher reached the node at an address that the node does not have itself.
bool is_translated(const NodeView& view);

// Returns the node's interface that has this address; empty: unknown.
std::string interface_of(const NodeView& view, const std::string& address);

}  // namespace hvd::launch
