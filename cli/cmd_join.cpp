#include <unistd.h>

#include <string>

#include "cli/commands.h"

namespace hvd::cli {

// The agent is this process: so a signal for the one reaches the other, and its exit code needs nobody to pass it on.
Result<int> join_job(const JoinOptions& options) {
  const std::string slots = std::to_string(options.slots);
  ::execl(options.agent_path.c_str(), options.agent_path.c_str(), "join", options.file.c_str(), slots.c_str(), nullptr);
  return Error::from_errno("cannot run " + options.agent_path);
}

}  // namespace hvd::cli
