// The last step before ranks start: from the placement and what the agents said, what each node is told. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"
#include "launcher/run/node_addresses.h"

namespace hvd::launch {

// The first node that lacks a GPU which the host list names there, as what its first rank cannot start for.
std::optional<StartFailedMessage> find_missing_gpu(const Placement& placement, const std::vector<NodeView>& views);

// One StartMessage per node. No GPU may be missing.
std::vector<StartMessage> make_start_messages(const JobSpec& spec, const Placement& placement,
                                              const std::vector<NodeView>& views, const std::string& job_id,
                                              const std::string& token);

// What the user should know of how ranks share GPUs and cores, a line for each node where they do.
std::vector<std::string> start_warnings(const JobSpec& spec, const Placement& placement,
                                        const std::vector<NodeView>& views);

}  // namespace hvd::launch
