// At which addresses the nodes of a job reach each other. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/transport/transport.h"

namespace hvd::launch {

// What is known of one node's session.
struct NodeView {
  Opened opened;
  ReadyMessage ready;
};

// One address per node: the one under which the launcher reached it; for the local node the launcher's own towards the
// others. Where no connection shows one (an rsh command), it is one of the node's own: the one that its host name
// means, else one in a network that other nodes are in too; loopback for a node that is alone.
// `interfaces`: the user's choice of those that may be used, the best first. A node that has none of them is treated as
// if there were no choice: missing_interface() is for refusing it.
std::vector<std::string> data_addresses(const std::vector<NodeView>& views,
                                        const std::vector<std::string>& interfaces = {});

// Why the node called `name` cannot be reached on one of these interfaces; empty: it can, or none are asked for.
std::string missing_interface(const NodeView& view, const std::string& name,
                              const std::vector<std::string>& interfaces);

// The interface of the node that has this address; empty: unknown.
std::string interface_of(const NodeView& view, const std::string& address);

}  // namespace hvd::launch
