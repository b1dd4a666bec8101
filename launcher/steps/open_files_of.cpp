#include "launcher/steps/open_files_of.h"

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/sessions/relay_tree.h"
#include "launcher/transport/dial_back.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/open_files.h"

namespace hvd::launch {

// It needs one descriptor per connection, or three pipes and a process. `wanted` counts more: where the tree does not
// work all nodes are reached from here, perhaps by the system's ssh, and under an engine strangers may hold connections
// too.
Result<void> allow_files_for(const JobSpec& job, const Placement& agents) {
  constexpr std::uint64_t kOwn = 32;  // includes a few that come and go
  constexpr std::uint64_t kConnection = 1;
  constexpr std::uint64_t kLocal = 2;  // includes the agent's standard error
  constexpr std::uint64_t kCommand = 4;
  std::uint64_t needed = kOwn;
  std::uint64_t wanted = kOwn;
  const std::vector<int> relays = relays_of(job, agents);
  for (const NodePlan& node : agents.nodes) {
    const TransportKind kind = choose_transport(job, node.host);
    const auto own = kind == TransportKind::kRsh ? kCommand : kind == TransportKind::kLocal ? kLocal : kConnection;
    wanted += kind == TransportKind::kSsh ? kCommand : own;
    needed += relays[static_cast<std::size_t>(node.index)] < 0 ? own : 0;
  }
  wanted += job.launcher == LauncherKind::kMpi || !job.join_file.empty() ? kMostCallers : 0;
  if (allow_open_files(wanted).ok()) {
    return {};
  }
  const auto allowed = allow_open_files(needed);
  const std::size_t nodes = agents.nodes.size();
  return allowed.ok()
             ? allowed
             : Result<void>(Error(allowed.error().code(),
                                  "for " + std::to_string(nodes) + (nodes == 1 ? " node " : " nodes ") +
                                      allowed.error().message() +
                                      "; raise nofile in /etc/security/limits.conf (of a service: LimitNOFILE=)"));
}

}  // namespace hvd::launch
