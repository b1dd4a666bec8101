#include "launcher/report/start_progress.h"

#include <algorithm>

namespace hvd::launch {

void StartProgress::note(int node, const std::string& what) {
  Node& at = node_of(node);
  at.what = what;
  at.changed = ++changes_;
}

std::string StartProgress::text() const {
  const auto count = [this](State state) {
    return std::count_if(nodes_.begin(), nodes_.end(), [state](const Node& node) { return node.state == state; });
  };
  const Node* slowest = nullptr;
  for (const Node& node : nodes_) {
    if (node.state == State::kWaiting && (slowest == nullptr || node.changed < slowest->changed)) {
      slowest = &node;
    }
  }
  if (slowest == nullptr) {
    return "";
  }
  const auto lost = count(State::kLost);
  const auto index = static_cast<std::size_t>(slowest - nodes_.data());
  return std::to_string(count(State::kReady)) + "/" + std::to_string(nodes_.size()) +
         (nodes_.size() == 1 ? " host" : " hosts") + " connected" +
         (lost > 0 ? ", " + std::to_string(lost) + " failed" : "") + "; slowest: " + placement_.nodes[index].host.name +
         (slowest->what.empty() ? "" : " (" + slowest->what + ")");
}

}  // namespace hvd::launch
