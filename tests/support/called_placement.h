// What an engine that starts agents has made of a job, as one text for tests.
#pragma once

#include <string>

#include "launcher/engines/called_agents.h"

namespace hvd::test {

// Returns "a:2 b:1 001" for the nodes' names and ranks, and the agent of each rank; or the message of an error.
inline std::string placed(const Result<launch::CalledPlacement>& called) {
  if (!called.ok()) {
    return called.error().message();
  }
  std::string text;
  for (const launch::NodePlan& node : called.value().placement.nodes) {
    text += node.host.name + ":" + std::to_string(node.local_size()) + " ";
  }
  for (const int pod : called.value().partition_of_rank) {
    text += std::to_string(pod);
  }
  return text;
}

}  // namespace hvd::test
