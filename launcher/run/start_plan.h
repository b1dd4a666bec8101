// The last step before ranks start: from the placement and what the agents said, what each node is told. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"
#include "launcher/run/node_addresses.h"

namespace hvd::launch {

// One StartMessage per node. An error is a GPU that a host list names and a node has not.
Result<std::vector<StartMessage>> make_start_messages(const JobSpec& spec, const Placement& placement,
                                                      const std::vector<NodeView>& views, const std::string& job_id,
                                                      const std::string& token);

// What the user should know of how ranks share GPUs, a line for each node where they do.
std::vector<std::string> gpu_warnings(const JobSpec& spec, const Placement& placement,
                                      const std::vector<NodeView>& views);

}  // namespace hvd::launch
