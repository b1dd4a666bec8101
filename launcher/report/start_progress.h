// StartProgress: how far the nodes of a job are reached, as one row for a terminal: how many, and which is the slowest:
// the one of which nothing new was heard for the longest. It tells no time, so that it changes only when something
// does. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/placement/placement.h"

namespace hvd::launch {

class StartProgress {
 public:
  // `placement` must outlive it.
  explicit StartProgress(const Placement& placement) : placement_(placement), nodes_(placement.nodes.size()) {}

  // What is done about a node that is not reached yet.
  void note(int node, const std::string& what);
  void mark_ready(int node) { node_of(node).state = State::kReady; }
  void mark_lost(int node) { node_of(node).state = State::kLost; }

  // "37/64 hosts connected, 1 failed; slowest: node17 (pushing the agent)"; empty when none is waited for.
  [[nodiscard]] std::string text() const;

 private:
  enum class State : std::uint8_t { kWaiting, kReady, kLost };
  struct Node {
    State state = State::kWaiting;
    std::uint64_t changed = 0;  // number of the change
    std::string what;
  };

  Node& node_of(int node) { return nodes_[static_cast<std::size_t>(node)]; }

  const Placement& placement_;
  std::vector<Node> nodes_;
  std::uint64_t changes_ = 0;
};

}  // namespace hvd::launch
