// AgentImages are the agent's executables that a launcher can send: its own processor's, and those for nodes with
// another one, if its installation has them. Value types.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// This is an agent executable, in memory.
struct AgentImage {
  std::string bytes;
  std::string sha256;   // lower-case hex
  std::string machine;  // `uname -m` that it runs on
};

struct AgentImages {
  std::vector<AgentImage> all;  // not empty; the first is for this machine
  // Returns the image for nodes on which `uname -m` says this; "": the first. Null: there is none.
  [[nodiscard]] const AgentImage* find(const std::string& machine) const;
};

// Reads `path`, and the files PATH-MACHINE beside it.
Result<AgentImages> load_agent_images(const std::string& path);

}  // namespace hvd::launch
