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
std::vector<std::string> data_addresses(const std::vector<NodeView>& views);

}  // namespace hvd::launch
