// The last step before ranks start: from the placement and what the agents said, what each node is told. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"

namespace hvd::launch {

// What is known of one node's session.
struct NodeView {
  bool is_local = false;
  std::string node_address;      // as the launcher reached it; empty for the local one
  std::string launcher_address;  // the launcher's own end of that path
  ReadyMessage ready;
};

// The addresses at which the nodes reach each other: as the launcher reached them; the local node by the launcher's
// own address towards the others, and by loopback when it is alone.
std::vector<std::string> data_addresses(const std::vector<NodeView>& views);

// One StartMessage per node.
std::vector<StartMessage> make_start_messages(const JobSpec& spec, const Placement& placement,
                                              const std::vector<NodeView>& views, const std::string& job_id,
                                              const std::string& token);

}  // namespace hvd::launch
