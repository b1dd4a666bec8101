// These methods of JobState decide on elastic jobs: who is done without, started again, taken in, released.
#include <signal.h>

#include <algorithm>

#include "launcher/run/exit_codes.h"
#include "launcher/run/job_state.h"

namespace hvd::launch {

JobState::Actions JobState::handle(const NodeJoining& event) {
  const NodePlan& plan = placement_.nodes[static_cast<std::size_t>(event.node)];
  nodes_.push_back(NodeState::kOpening);
  is_server_.resize(is_server_.size() + plan.ranks.size(), false);
  order_.add(static_cast<int>(plan.ranks.size()));
  RankRecord record;
  record.is_member = false;
  ranks_.insert(ranks_.end(), plan.ranks.size(), record);
  return {};
}

JobState::Actions JobState::handle(const RanksReleased& event) {
  Actions actions;
  for (const int rank : event.ranks) {
    RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
    record.is_member = false;
    record.is_released = true;
  }
  for (const NodePlan& plan : placement_.nodes) {
    const std::vector<int> there = ranks_there(plan);
    const auto is_released = [this](int rank) { return ranks_[static_cast<std::size_t>(rank)].is_released; };
    const auto is_of_event = [&event](int rank) {
      return std::find(event.ranks.begin(), event.ranks.end(), rank) != event.ranks.end();
    };
    if (std::none_of(there.begin(), there.end(), is_of_event)) {
      continue;
    }
    NodeState& node = nodes_[static_cast<std::size_t>(plan.index)];
    if (node == NodeState::kOpening) {
      node = NodeState::kLost;  // nothing was started there
      for (const int rank : there) {
        ranks_[static_cast<std::size_t>(rank)].state = RankRecord::State::kLost;
      }
    } else if (event.are_told) {
      for (const int rank : there) {
        if (is_of_event(rank)) {
          actions.emplace_back(AwaitEnd{rank, ranks_[static_cast<std::size_t>(rank)].pid});
        }
      }
    } else if (std::all_of(there.begin(), there.end(), is_released)) {
      actions.emplace_back(EndNode{plan.index});
    } else {
      for (const int rank : there) {
        if (is_of_event(rank)) {
          actions.emplace_back(EndRank{rank, SIGTERM});
          actions.emplace_back(AwaitEnd{rank, ranks_[static_cast<std::size_t>(rank)].pid});
        }
      }
    }
  }
  return actions;
}

JobState::Actions JobState::handle(const HostsDue&) {
  if (!short_for_ || phase_ != JobPhase::kRunning) {
    return {};
  }
  Cause cause = *std::move(short_for_);
  cause.lines.push_back("fewer than the " + std::to_string(least_) +
                        " ranks that the job needs (--min-np) were left, and no host has joined it within "
                        "--elastic-timeout");
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const MembersChanged& event) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].is_member =
        std::find(event.members.begin(), event.members.end(), static_cast<int>(rank)) != event.members.end();
  }
  short_for_.reset();
  const std::string loss = std::exchange(last_loss_, "");
  if (reset_limit_ && ++resets_ > *reset_limit_) {
    // Programs that start jobs know horovodrun's words.
    Cause cause{{"Horovod was shutdown because number of resets during elastic job exceeded limit: " +
                 std::to_string(*reset_limit_)},
                exit_code::kResetLimit};
    if (!loss.empty()) {
      cause.lines.push_back(loss);
    }
    return stop_for(std::move(cause), SIGTERM);
  }
  return {};
}

// A script that fails before it joins the job would fail again. And when a rank has ended in order, it will not be
// there for the others to meet.
bool JobState::is_worth_restarting(const RankRecord& failed) const {
  return failed.has_joined && may_lose_more();
}

bool JobState::may_lose_more() const {
  const auto has_ended_well = [](const RankRecord& record) {
    return record.state == RankRecord::State::kEnded && record.status.is_success() && !record.is_released;
  };
  return phase_ == JobPhase::kRunning && restarts_ < restart_limit_ &&
         std::none_of(ranks_.begin(), ranks_.end(), has_ended_well);
}

void JobState::note_error(int rank) {
  RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  const FailureNews* told = order_.told(rank);
  const std::string error =
      told != nullptr && told->kind == FailureNews::Kind::kEnds && !told->has_committed ? told->what : "";
  record.fails_again = !error.empty() && error == record.failed_with;
  record.failed_with = error;
}

bool JobState::all_fail_again() const {
  bool is_any_there = false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankRecord& record = ranks_[rank];
    if (is_server_[rank] || record.is_released || record.state == RankRecord::State::kLost) {
      continue;
    }
    if (!record.fails_again) {
      return false;
    }
    is_any_there = true;
  }
  return is_any_there;
}

std::vector<int> JobState::ranks_to_keep() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; may_lose_more() && rank < ranks_.size(); ++rank) {
    const RankRecord& record = ranks_[rank];
    const bool is_there = record.state == RankRecord::State::kRunning || record.state == RankRecord::State::kPending;
    if (is_there && !record.is_released) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

bool JobState::can_train(int rank) const {
  const RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  return record.state == RankRecord::State::kRunning && record.has_joined && record.is_member;
}

bool JobState::is_newcomer(int rank) const {
  const RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  const bool is_there = record.state == RankRecord::State::kRunning || record.state == RankRecord::State::kPending;
  return phase_ == JobPhase::kRunning && is_there && !record.is_member && !record.is_released && record.restarts == 0;
}

bool JobState::are_newcomers(const std::vector<int>& ranks) const {
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [this](int rank) { return is_newcomer(rank); });
}

bool JobState::can_do_with(const std::vector<int>& ranks) const {
  const auto count = std::count_if(ranks.begin(), ranks.end(), [this](int rank) { return can_train(rank); });
  // Somebody must be left who has the state that was reached.
  return may_lose_more() && count >= (may_grow_ ? 1 : least_);
}

bool JobState::can_go_on() const {
  const auto can_train = [](const RankRecord& record) {
    return record.state == RankRecord::State::kRunning && record.has_joined && record.is_member;
  };
  return std::count_if(ranks_.begin(), ranks_.end(), can_train) >= least_;
}

std::vector<int> JobState::ranks_there(const NodePlan& node) const {
  std::vector<int> ranks;
  for (const RankPlan& rank : node.ranks) {
    const RankRecord::State state = ranks_[static_cast<std::size_t>(rank.rank)].state;
    if (state == RankRecord::State::kRunning || state == RankRecord::State::kPending) {
      ranks.push_back(rank.rank);
    }
  }
  return ranks;
}

std::optional<JobState::Actions> JobState::do_without(const std::vector<int>& ranks, const std::string& cause) {
  std::vector<int> others;
  for (int rank = 0; rank < placement_.size; ++rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
      others.push_back(rank);
    }
  }
  if (!can_do_with(others)) {
    return std::nullopt;
  }
  const auto left = std::count_if(others.begin(), others.end(), [this](int rank) { return can_train(rank); });
  const bool is_short = left < least_;
  if (is_short && !short_for_) {
    short_for_ = Cause{{cause}, exit_code::kNodeLost};
  }
  return lose(ranks, cause, is_short);
}

std::optional<JobState::Actions> JobState::leave_host_of(int rank) {
  if (!excludes_hosts_ || !is_worth_restarting(ranks_[static_cast<std::size_t>(rank)])) {
    return std::nullopt;
  }
  const int host = placement_.node_of(rank).machine;
  std::vector<int> ranks = {rank};
  std::vector<int> nodes;
  for (const NodePlan& node : placement_.nodes) {
    if (node.machine == host && nodes_[static_cast<std::size_t>(node.index)] == NodeState::kReady) {
      const std::vector<int> there = ranks_there(node);
      ranks.insert(ranks.end(), there.begin(), there.end());
      nodes.push_back(node.index);
    }
  }
  auto actions = do_without(ranks, describe(rank));
  if (actions) {
    for (const int node : nodes) {
      actions->emplace_back(EndNode{node});
    }
  }
  return actions;
}

// It is no restart: what is lost so does not come back by itself, so that it cannot happen again and again.
JobState::Actions JobState::lose(const std::vector<int>& ranks, const std::string& cause, bool is_short) {
  if (ranks.empty()) {
    return {};  // all of the node's ranks had ended, or were done without before
  }
  for (const int rank : ranks) {
    ranks_[static_cast<std::size_t>(rank)].state = RankRecord::State::kLost;
    order_.note_end(rank, false, {});
  }
  last_loss_ = cause;
  Actions actions{GoOnWithout{ranks, cause, is_short}};
  if (is_short) {
    actions.emplace_back(AwaitHosts{});
  }
  return actions;
}

}  // namespace hvd::launch
