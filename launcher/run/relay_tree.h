// RelayTree: by whom the nodes of a job are reached. Up to --fanout remote nodes by hvdrun itself; where there are
// more, these first ones reach the next ones, and so on, so that nobody has more connections and the work is shared
// out.
//
// Thread: loop only. The spec, the placement, the loop and the log outlive it; it outlives all streams.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/relay.h"
#include "launcher/transport/relayed.h"
#include "launcher/transport/transport.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/log.h"

namespace hvd::launch {

// [index of a node among those to be reached] the index of the one that relays to it; -1: none does. With f for the
// fanout, the first f have none, the next f * f have these in turn, the next f * f * f those, and so on: nobody has
// more than f behind it, a relaying node stands before those behind it, and all that are equally far have equally many
// but one.
std::vector<int> relays_in_turn(int count, int fanout);

// The same by the index of each node in `agents`, for the job's own: nodes on this machine, and all under an engine,
// have none and relay to none.
std::vector<int> relays_of(const JobSpec& spec, const Placement& agents);

class RelayTree {
 public:
  using Send = std::function<void(int node, AgentMessage type, std::string_view body)>;

  RelayTree(EventLoop& loop, const JobSpec& spec, const Placement& agents, Send send, Log& log);
  RelayTree(const RelayTree&) = delete;
  RelayTree& operator=(const RelayTree&) = delete;

  // The way to a node, made of the direct one; valid as long as the tree is.
  Transport& way_to(int node, Transport& direct);
  // The host that relays to the node; null: none.
  [[nodiscard]] const std::string* relay_of(int node) const;
  // What becomes of a node's own session.
  void change(int node, Relay::State state);
  Result<void> on_frame(int node, const Frame& frame);

 private:
  Result<RshCommand> command_for(const NodeTarget& target) const;

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
