// The local transport serves this machine: the agent is a process that we start. It is a separate process for the same
// reason as on other nodes: when hvdrun is killed, the agent is left to stop the ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/transport/transport.h"
#include "runtime/base/log.h"

namespace hvd::launch {

struct LocalOptions {
  std::string agent_path;                // the agent executable
  std::vector<std::string> environment;  // for the agent, and so for its ranks
  std::uint64_t open_files = 0;          // likewise (SpawnOptions)
  Log* errors_to = nullptr;              // gets what the agent prints to its standard error; null: it has ours
};

std::unique_ptr<Transport> make_local_transport(EventLoop& loop, LocalOptions options);

// Returns true for a name of this machine that needs no resolver: localhost, a loopback address, its host name in small
// or capital letters, an address of one of its interfaces, or another of its names (OwnNames), which are read once.
bool is_local_host(const std::string& name);

}  // namespace hvd::launch
