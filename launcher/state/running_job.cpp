#include "launcher/state/running_job.h"

#include <algorithm>

namespace hvd::launch {

RunningJob::RunningJob(const Placement& placement_of_job, const std::vector<int>& servers, Duration grace)
    : placement(placement_of_job),
      nodes(placement.nodes.size(), NodeState::kOpening),
      ranks(static_cast<std::size_t>(placement.size)),
      order(placement.size, grace) {
  for (const int server : servers) {
    rank(server).is_server = true;
  }
}

void RunningJob::add(const NodePlan& plan) {
  nodes.push_back(NodeState::kOpening);
  order.add(static_cast<int>(plan.ranks.size()));
  RankRecord record;
  record.is_member = false;
  ranks.insert(ranks.end(), plan.ranks.size(), record);
}

void RunningJob::lose(int lost) {
  rank(lost).state = RankRecord::State::kLost;
  order.note_lost(lost);
}

void RunningJob::note_error(int failed) {
  RankRecord& record = rank(failed);
  const FailureNews* told = order.told(failed);
  const std::string error =
      told != nullptr && told->kind == FailureNews::Kind::kEnds && !told->has_committed ? told->what : "";
  record.fails_again = !error.empty() && error == record.failed_with;
  record.failed_with = error;
}

bool RunningJob::is_there(int of) const {
  const RankRecord::State state = rank(of).state;
  return state == RankRecord::State::kRunning || state == RankRecord::State::kPending;
}

std::vector<int> RunningJob::ranks_there(const NodePlan& node) const {
  std::vector<int> there;
  for (const RankPlan& plan : node.ranks) {
    if (is_there(plan.rank)) {
      there.push_back(plan.rank);
    }
  }
  return there;
}

bool RunningJob::can_train(int of) const {
  const RankRecord& record = rank(of);
  return record.state == RankRecord::State::kRunning && record.has_joined && record.is_member;
}

bool RunningJob::is_optional(int of) const {
  return rank(of).is_server || !rank(of).is_member;
}

bool RunningJob::is_newcomer(int of) const {
  const RankRecord& record = rank(of);
  return phase == JobPhase::kRunning && is_there(of) && !record.is_member && !record.is_released &&
         record.restarts == 0;
}

bool RunningJob::are_newcomers(const std::vector<int>& of) const {
  return !of.empty() && std::all_of(of.begin(), of.end(), [this](int each) { return is_newcomer(each); });
}

bool RunningJob::all_fail_again() const {
  bool is_any_there = false;
  for (const RankRecord& record : ranks) {
    if (record.is_server || record.is_released || record.state == RankRecord::State::kLost) {
      continue;
    }
    if (!record.fails_again) {
      return false;
    }
    is_any_there = true;
  }
  return is_any_there;
}

std::string RunningJob::describe(int of) const {
  const RankRecord& record = rank(of);
  const FailureNews* told = order.told(of);
  const bool is_failing = record.state == RankRecord::State::kRunning && told != nullptr;
  return "rank " + std::to_string(of) + " on " + placement.node_of(of).host.name + " (pid " +
         std::to_string(record.pid) + ") " + (is_failing ? "failed: " + told->what : record.status.text());
}

}  // namespace hvd::launch
