#include "launcher/state/job_nodes.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/state/exit_codes.h"
#include "launcher/state/unopened_hosts.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {

JobActions JobNodes::handle(const NodeReady& event) {
  NodeState& node = job_.node(event.node);
  has_reached_one_ = has_reached_one_ || !is_here(job_.plan(event.node).host);
  if (node != NodeState::kOpening) {
    return {};
  }
  if (job_.phase == JobPhase::kOpening) {
    node = NodeState::kReady;
    return start_if_open();
  }
  if (job_.phase == JobPhase::kRunning && !end_.is_letting_go()) {
    node = NodeState::kReady;
    return {StartNode{event.node}};
  }
  node = NodeState::kLost;  // it comes too late
  return end_.finish_if_over();
}

JobActions JobNodes::handle(const NodeLost& event) {
  NodeState& node = job_.node(event.node);
  const NodePlan& plan = job_.plan(event.node);
  const NodeState before = node;
  if (before == NodeState::kDone) {
    return {};  // it has reported all there was, and only leaves
  }
  node = NodeState::kLost;
  if (before == NodeState::kLost && job_.phase == JobPhase::kOpening) {
    return {};
  }
  if (job_.phase == JobPhase::kOpening) {
    // Wait for the other nodes, so that the error can name all that cannot be reached.
    unopened_.emplace_back(event.node, event.why);
    return start_if_open();
  }
  Cause cause;
  cause.exit_code = exit_code::kNodeLost;
  cause.kind = Cause::Kind::kLoss;
  cause.lines.push_back("node " + plan.host.name + " was lost, with " + ranks_text(plan) + ": " + event.why.message());
  if (!is_here(plan.host)) {
    cause.unreached = {{{plan.host.name, event.why.message(), event.why.code()}}, has_reached_one_};
  }
  const std::vector<int> there = job_.ranks_there(plan);
  if (before == NodeState::kOpening) {
    return job_.phase != JobPhase::kRunning
               ? end_.finish_if_over()
               : changes_.lose(there, event.why.message() + "; " + plan.host.name + " does not join");
  }
  if (changes_.has_spare_ranks() && there.empty() && job_.phase == JobPhase::kRunning) {
    return end_.finish_if_over();  // all of its ranks had ended, or were done without before
  }
  if (job_.are_newcomers(there)) {
    return changes_.lose(there, cause.lines.front());
  }
  if (auto others = changes_.do_without(there, cause.lines.front())) {
    return *std::move(others);
  }
  for (const int rank : there) {
    job_.lose(rank);
  }
  JobActions actions = end_.stop_for(std::move(cause), SIGTERM);
  const JobActions end = end_.finish_if_over();
  actions.insert(actions.end(), end.begin(), end.end());
  return actions;
}

JobActions JobNodes::handle(const NodeEnding& event) {
  const NodePlan& plan = job_.plan(event.node);
  Cause cause;
  cause.exit_code = exit_code::kNodeLost;
  cause.kind = Cause::Kind::kLoss;
  cause.lines.push_back("the agent on " + plan.host.name + " ends, with " + ranks_text(plan) + ": " + event.why);
  const std::vector<int> there = job_.ranks_there(plan);
  if (job_.phase == JobPhase::kRunning && there.empty()) {
    return {};  // all of its ranks had ended, or were done without before
  }
  if (job_.are_newcomers(there)) {
    return changes_.lose(there, cause.lines.front());
  }
  if (auto others = event.is_last ? std::nullopt : changes_.do_without(there, cause.lines.front())) {
    return *std::move(others);
  }
  return end_.stop_for(std::move(cause), SIGTERM);
}

JobActions JobNodes::handle(const NodeDone& event) {
  if (job_.phase == JobPhase::kOpening) {
    // It has said why in a line of its own, and no rank can be started there, now or at a next start.
    const NodeState before = std::exchange(job_.node(event.node), NodeState::kLost);
    if (before == NodeState::kOpening || before == NodeState::kReady) {
      unopened_.emplace_back(event.node, Error(Code::kLostPeer, job_.plan(event.node).host.name +
                                                                    ": its agent has ended before the job began"));
    }
    return start_if_open();
  }
  job_.node(event.node) = NodeState::kDone;
  return end_.finish_if_over();
}

JobActions JobNodes::handle(const StartTimedOut&) {
  if (job_.phase != JobPhase::kOpening) {
    return {};
  }
  for (std::size_t node = 0; node < job_.nodes.size(); ++node) {
    if (job_.nodes[node] == NodeState::kOpening) {
      job_.nodes[node] = NodeState::kLost;
      unopened_.emplace_back(static_cast<int>(node),
                             Error(Code::kTimeout, job_.placement.nodes[node].host.name +
                                                       ": no answer within --start-timeout; is it up? try: ssh " +
                                                       job_.placement.nodes[node].host.name + " true"));
    }
  }
  return start_if_open();
}

JobActions JobNodes::start_if_open() {
  const auto is_settled = [](NodeState state) { return state != NodeState::kOpening; };
  if (job_.phase != JobPhase::kOpening || !std::all_of(job_.nodes.begin(), job_.nodes.end(), is_settled)) {
    return {};
  }
  if (unopened_.empty()) {
    job_.phase = JobPhase::kRunning;
    return {StartRanks{}};
  }
  Cause cause;
  cause.kind = Cause::Kind::kUnreached;
  // This machine needs no connection, so what failed here is the agent's start.
  cause.exit_code = exit_code::kStartFailed;
  std::vector<std::pair<std::string, std::string>> hosts;
  for (const auto& [node, why] : unopened_) {
    const HostSpec& host = job_.plan(node).host;
    hosts.emplace_back(host.name, why.message());
    if (!is_here(host)) {
      cause.unreached.hosts.push_back({host.name, why.message(), why.code()});
      cause.unreached.has_reached_one = has_reached_one_;
      cause.exit_code = exit_code::kUnreachable;
    }
  }
  cause.lines = unopened_lines(hosts);
  job_.cause = std::move(cause);
  job_.phase = JobPhase::kDone;
  return {ReportCause{}, Finish{}};
}

std::vector<std::string> JobNodes::silent_hosts() const {
  std::vector<std::string> hosts;
  for (std::size_t node = 0; node < job_.nodes.size(); ++node) {
    if (job_.nodes[node] == NodeState::kOpening) {
      hosts.push_back(job_.placement.nodes[node].host.name);
    }
  }
  return hosts;
}

}  // namespace hvd::launch
