#include "launcher/state/elastic_changes.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "launcher/state/exit_codes.h"
#include "runtime/base/text.h"

namespace hvd::launch {

JobActions ElasticChanges::handle(const MembersChanged& event) {
  for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
    job_.ranks[rank].is_member =
        std::find(event.members.begin(), event.members.end(), static_cast<int>(rank)) != event.members.end();
  }
  short_for_.reset();
  const std::string loss = std::exchange(last_loss_, "");
  if (reset_limit_ && !event.is_repeated && ++resets_ > *reset_limit_) {
    // Programs that start jobs know horovodrun's words.
    Cause cause{{"Horovod was shutdown because number of resets during elastic job exceeded limit: " +
                 std::to_string(*reset_limit_)},
                exit_code::kResetLimit};
    if (!loss.empty()) {
      cause.lines.push_back(loss);
    }
    return end_.stop_for(std::move(cause), SIGTERM);
  }
  return {};
}

JobActions ElasticChanges::handle(const NodeJoining& event) {
  job_.add(job_.plan(event.node));
  return {};
}

JobActions ElasticChanges::handle(const RanksReleased& event) {
  for (const int rank : event.ranks) {
    RankRecord& record = job_.rank(rank);
    record.is_member = false;
    record.is_released = true;
  }
  JobActions actions;
  for (const NodePlan& plan : job_.placement.nodes) {
    const JobActions of_node = release(plan, event);
    actions.insert(actions.end(), of_node.begin(), of_node.end());
  }
  return actions;
}

JobActions ElasticChanges::release(const NodePlan& plan, const RanksReleased& event) {
  const std::vector<int> there = job_.ranks_there(plan);
  std::vector<int> released;
  std::copy_if(there.begin(), there.end(), std::back_inserter(released), [&event](int rank) {
    return std::find(event.ranks.begin(), event.ranks.end(), rank) != event.ranks.end();
  });
  if (released.empty()) {
    return {};
  }
  if (NodeState& node = job_.node(plan.index); node == NodeState::kOpening) {
    node = NodeState::kLost;  // nothing was started there
    for (const int rank : there) {
      job_.rank(rank).state = RankRecord::State::kLost;
    }
    return {};
  }
  const auto is_released = [this](int rank) { return job_.rank(rank).is_released; };
  if (!event.are_told && std::all_of(there.begin(), there.end(), is_released)) {
    return {EndNode{plan.index}};
  }
  JobActions actions;
  for (const int rank : released) {
    if (!event.are_told) {
      actions.emplace_back(EndRank{rank, SIGTERM});
    }
    actions.emplace_back(AwaitEnd{rank, job_.rank(rank).pid});
  }
  return actions;
}

// The others would wait for the host until each of them has given up, and the job would end.
JobActions ElasticChanges::handle(const HostUnmet& event) {
  std::vector<int> ranks;
  std::copy_if(event.ranks.begin(), event.ranks.end(), std::back_inserter(ranks),
               [this](int rank) { return job_.is_there(rank); });
  if (ranks.empty()) {
    return {};
  }
  const std::string& host = job_.placement.node_of(ranks.front()).host.name;
  auto actions = do_without(ranks, host + " has come with " + counted(ranks.size(), "rank") +
                                       ", but cannot connect to the other hosts; is a " +
                                       "firewall between them? hvdrun check -H ..., with " + host +
                                       " and another of them, says more");
  if (!actions) {
    return {};
  }
  std::set<int> nodes;
  for (const int rank : ranks) {
    nodes.insert(job_.placement.node_of(rank).index);
  }
  for (const int node : nodes) {
    actions->emplace_back(EndNode{node});
  }
  return *std::move(actions);
}

JobActions ElasticChanges::handle(const HostsDue&) {
  if (!short_for_ || job_.phase != JobPhase::kRunning) {
    return {};
  }
  Cause cause = *std::move(short_for_);
  cause.lines.push_back("fewer than the " + std::to_string(least_) +
                        " ranks that the job needs (--min-np) were left, and no host has joined it within "
                        "--elastic-timeout");
  return end_.stop_for(std::move(cause), SIGTERM);
}

std::vector<int> ElasticChanges::ranks_to_keep() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; may_change() && rank < job_.ranks.size(); ++rank) {
    if (job_.is_there(static_cast<int>(rank)) && !job_.ranks[rank].is_released) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

bool ElasticChanges::can_do_with(const std::vector<int>& ranks) const {
  const auto count = std::count_if(ranks.begin(), ranks.end(), [this](int rank) { return job_.can_train(rank); });
  // Somebody must be left who has the state that was reached.
  return may_change() && count >= (may_grow_ ? 1 : least_);
}

// A script that fails before it joins the job would fail again.
bool ElasticChanges::is_worth_restarting(int rank) const {
  return job_.rank(rank).has_joined && restarts_ < restart_limit_ && may_change();
}

// When a rank has ended in order, it will not be there for the others to meet.
bool ElasticChanges::may_change() const {
  const auto has_ended_well = [](const RankRecord& record) {
    return record.state == RankRecord::State::kEnded && record.status.is_success() && !record.is_released;
  };
  return job_.phase == JobPhase::kRunning && restart_limit_ > 0 &&
         std::none_of(job_.ranks.begin(), job_.ranks.end(), has_ended_well);
}

bool ElasticChanges::can_go_on() const {
  int count = 0;
  for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
    count += job_.can_train(static_cast<int>(rank)) ? 1 : 0;
  }
  return count >= least_;
}

bool ElasticChanges::go_on_without(int rank) const {
  return !job_.rank(rank).is_member && job_.phase == JobPhase::kRunning && (can_go_on() || short_for_);
}

std::string ElasticChanges::limit_text() const {
  if (restarts_ == 0 || restarts_ != restart_limit_) {
    return "";
  }
  return ", after " + counted(static_cast<std::size_t>(restarts_), "restart") + " of ranks, the most that are allowed";
}

std::optional<JobActions> ElasticChanges::restart(int rank) {
  if (excludes_hosts_ || !is_worth_restarting(rank)) {
    return std::nullopt;
  }
  last_loss_ = job_.describe(rank);
  RankRecord& record = job_.rank(rank);
  record.state = RankRecord::State::kPending;
  record.is_member = false;
  record.last_loss = last_loss_;
  ++record.restarts;
  return JobActions{RestartRank{rank, ++restarts_, last_loss_}};
}

std::optional<JobActions> ElasticChanges::do_without(const std::vector<int>& ranks, const std::string& cause) {
  std::vector<int> others;
  for (int rank = 0; rank < job_.placement.size; ++rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
      others.push_back(rank);
    }
  }
  if (!can_do_with(others)) {
    return std::nullopt;
  }
  const auto left = std::count_if(others.begin(), others.end(), [this](int rank) { return job_.can_train(rank); });
  const bool is_short = left < least_;
  if (is_short && !short_for_) {
    short_for_ = Cause{{cause}, exit_code::kNodeLost};
  }
  return lose(ranks, cause, is_short);
}

std::optional<JobActions> ElasticChanges::leave_host_of(int rank) {
  if (!excludes_hosts_ || !is_worth_restarting(rank)) {
    return std::nullopt;
  }
  const int host = job_.placement.node_of(rank).machine;
  std::vector<int> ranks = {rank};
  std::vector<int> nodes;
  for (const NodePlan& node : job_.placement.nodes) {
    if (node.machine == host && job_.node(node.index) == NodeState::kReady) {
      const std::vector<int> there = job_.ranks_there(node);
      ranks.insert(ranks.end(), there.begin(), there.end());
      nodes.push_back(node.index);
    }
  }
  auto actions = do_without(ranks, job_.describe(rank));
  if (actions) {
    for (const int node : nodes) {
      actions->emplace_back(EndNode{node});
    }
  }
  return actions;
}

// It is no restart: what is lost so does not come back by itself, so that it cannot happen again and again.
JobActions ElasticChanges::lose(const std::vector<int>& ranks, const std::string& cause, bool is_short) {
  if (ranks.empty()) {
    return {};  // all of the node's ranks had ended, or were done without before
  }
  for (const int rank : ranks) {
    job_.lose(rank);
    job_.rank(rank).lost_for = cause;
  }
  last_loss_ = cause;
  JobActions actions{GoOnWithout{ranks, cause, is_short}};
  if (is_short) {
    actions.emplace_back(AwaitHosts{});
  }
  return actions;
}

}  // namespace hvd::launch
