// RelayTree decides through which node each node of a job is reached. hvdrun itself connects to up to --fanout remote
// nodes. Where there are more, these first ones connect to the next ones, and so on. So no process holds more
// connections than that, and the work of starting is shared.
//
// Thread: loop only. The spec, the placement, the loop and the log outlive it; it outlives all streams.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launcher/command/relay.h"
#include "launcher/command/relayed.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// Returns for each of `count` nodes the index of the node that relays to it; -1: hvdrun reaches it itself. With fanout
// f the first f nodes have no relay. The next f * f have these as relays in turn, the next f * f * f have those, and so
// on. A node relays to at most f others and stands before them in the list, and nodes at the same depth have the same
// number behind them, give or take one.
std::vector<int> relays_in_turn(int count, int fanout);

// Does the same for the nodes of `agents`, by index. Nodes on this machine, and all nodes under an engine, have no
// relay and relay to none.
std::vector<int> relays_of(const JobSpec& spec, const Placement& agents);

class RelayTree {
 public:
  using Send = std::function<void(int node, AgentMessage type, std::string_view body)>;

  RelayTree(EventLoop& loop, const JobSpec& spec, const Placement& agents, Send send, Log& log);
  RelayTree(const RelayTree&) = delete;
  RelayTree& operator=(const RelayTree&) = delete;

  // Returns the way to a node, which is `direct` where nothing relays to it; valid as long as the tree is.
  Transport& way_to(int node, Transport& direct);
  // Returns the host that relays to the node; null: none.
  [[nodiscard]] const std::string* relay_of(int node) const;
  // Reports what has become of the node's own session, which carries those of the nodes behind it.
  void change(int node, Relay::State state);
  // Its agent has told its processor, as `uname -m` says it.
  void set_processor(int node, const std::string& processor);
  Result<void> on_frame(int node, const Frame& frame);

 private:
  Result<RshCommand> command_for(const NodeTarget& target) const;
  // Nodes that joined the running job have no relay and relay to none.
  [[nodiscard]] int parent_of(int node) const {
    const auto index = static_cast<std::size_t>(node);
    return index < parents_.size() ? parents_[index] : -1;
  }
  [[nodiscard]] Relay* relay_at(int node) const {
    const auto index = static_cast<std::size_t>(node);
    return index < relays_.size() ? relays_[index].get() : nullptr;
  }

  // constant after construction
  EventLoop& loop_;
  const JobSpec& spec_;
  const std::vector<int> parents_;              // [node]
  std::vector<std::unique_ptr<Relay>> relays_;  // [node]; null: it relays to none
  std::shared_ptr<RelayedShared> shared_;       // null: there is no tree
  // loop only
  std::vector<std::unique_ptr<RelayedTransport>> ways_;  // [node]; null: reached directly
};

}  // namespace hvd::launch
