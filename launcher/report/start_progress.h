// StartProgress shows how far the start of a job is, as one row for a terminal: how many nodes are connected, and which
// is the slowest, the one that has reported nothing new for the longest. It shows no time, so that the row changes only
// when something happens. Value type.
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

  // Notes a step of connecting to a node that has not answered yet.
  void note(int node, const std::string& what);
  void mark_ready(int node) { node_of(node).state = State::kReady; }
  void mark_lost(int node) { node_of(node).state = State::kLost; }

  // Returns "37/64 hosts connected, 1 failed; slowest: node17 (pushing the agent)"; empty when no node is awaited.
  [[nodiscard]] std::string text() const;

 private:
  enum class State : std::uint8_t { kWaiting, kReady, kLost };
  struct Node {
    State state = State::kWaiting;
    std::uint64_t changed = 0;  // counts changes; a lower number is an older change
    std::string what;
  };

  Node& node_of(int node) {
    nodes_.resize(placement_.nodes.size());  // hosts may join a running job
    return nodes_[static_cast<std::size_t>(node)];
  }

  const Placement& placement_;
  std::vector<Node> nodes_;
  std::uint64_t changes_ = 0;
};

}  // namespace hvd::launch
