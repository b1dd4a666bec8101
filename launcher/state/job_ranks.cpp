#include "launcher/state/job_ranks.h"

#include <signal.h>

#include <utility>

#include "launcher/state/exit_codes.h"

namespace hvd::launch {

JobActions JobRanks::handle(const RankStarted& event) {
  RankRecord& record = job_.rank(event.rank);
  if (record.state == RankRecord::State::kLost) {
    return {};  // its node was given up while this was on its way
  }
  record.state = RankRecord::State::kRunning;
  record.pid = event.pid;
  record.has_joined = false;
  job_.order.note_start(event.rank);
  return {};
}

JobActions JobRanks::handle(const RankJoined& event) {
  job_.rank(event.rank).has_joined = true;
  job_.rank(event.rank).last_loss.clear();
  job_.order.note_joined(event.rank);
  return {};
}

JobActions JobRanks::handle(const RankStartFailed& event) {
  Cause cause;
  cause.exit_code = event.why.code() == Code::kNotFound ? exit_code::kNoProgram : exit_code::kStartFailed;
  cause.lines.push_back("cannot start rank " + std::to_string(event.rank) + " on " +
                        job_.placement.node_of(event.rank).host.name + ": " + event.why.message());
  RankRecord& record = job_.rank(event.rank);
  if (record.is_released) {  // it waited to be started again, and its host is given back
    record.state = RankRecord::State::kLost;
    return after_released(event.rank);
  }
  if (job_.is_newcomer(event.rank)) {
    return changes_.lose(unstarted_newcomers(event.rank), cause.lines.front());
  }
  if (record.restarts > 0) {
    if (auto others = changes_.do_without({event.rank}, cause.lines.front())) {
      return *std::move(others);
    }
  }
  return end_.stop_for(std::move(cause), SIGTERM);
}

// The agent reports one rank for all that it does not start.
std::vector<int> JobRanks::unstarted_newcomers(int reported) const {
  std::vector<int> ranks = {reported};
  for (const RankPlan& plan : job_.placement.node_of(reported).ranks) {
    const bool is_unstarted = job_.rank(plan.rank).state == RankRecord::State::kPending && job_.is_newcomer(plan.rank);
    if (is_unstarted && plan.rank != reported) {
      ranks.push_back(plan.rank);
    }
  }
  return ranks;
}

JobActions JobRanks::handle(const RankFailing& event) {
  const RankRecord& record = job_.rank(event.rank);
  if (job_.cause || record.state != RankRecord::State::kRunning) {
    return {};  // it failed because the job is ending, or it ended before its report came
  }
  job_.order.note_news(event.rank, event.news, event.at);
  if (job_.order.told(event.rank) == nullptr) {
    return failure_.look_again();
  }
  const bool is_spare = job_.is_newcomer(event.rank) || changes_.go_on_without(event.rank);
  if (is_spare || changes_.is_worth_restarting(event.rank)) {
    return {AwaitEnd{event.rank, record.pid}};
  }
  return failure_.look(false);
}

JobActions JobRanks::handle(const RankExited& event) {
  RankRecord& record = job_.rank(event.rank);
  if (record.state == RankRecord::State::kLost) {
    return end_.let_others_go();  // it had been done without already
  }
  if (record.is_released) {
    return end_released(event);
  }
  const bool is_new = job_.is_newcomer(event.rank);
  record.state = RankRecord::State::kEnded;
  record.status = event.status;
  record.detail = event.detail;
  record.was_let_go = end_.is_letting_go() && job_.is_optional(event.rank);
  const bool is_good = event.status.is_success() || record.was_let_go;
  job_.order.note_end(event.rank, !is_good, event.at);
  if (job_.is_awaiting_end && job_.cause->rank == event.rank) {
    return failure_.settle(event);
  }
  if (is_good) {
    const JobActions news = failure_.look_again();
    return news.empty() ? end_.let_others_go() : news;
  }
  return fail(event.rank, is_new);
}

JobActions JobRanks::end_released(const RankExited& event) {
  RankRecord& record = job_.rank(event.rank);
  record.state = RankRecord::State::kEnded;
  record.status = event.status;
  job_.order.note_lost(event.rank);
  return after_released(event.rank);
}

// Ends the node with the last of its ranks.
JobActions JobRanks::after_released(int rank) {
  const NodePlan& node = job_.placement.node_of(rank);
  if (job_.phase == JobPhase::kRunning && job_.ranks_there(node).empty()) {
    return {EndNode{node.index}};
  }
  return end_.let_others_go();
}

JobActions JobRanks::fail(int rank, bool is_newcomer) {
  job_.rank(rank).has_followed = !job_.cause;
  job_.note_error(rank);
  if (job_.all_fail_again()) {
    return failure_.look(false);
  }
  if (auto others = changes_.leave_host_of(rank)) {
    return *std::move(others);
  }
  if (auto restarted = changes_.restart(rank)) {
    return *std::move(restarted);
  }
  // The others train without it: what ends it is of its host, or of its new start.
  if (is_newcomer || changes_.go_on_without(rank)) {
    return changes_.lose({rank}, job_.describe(rank));
  }
  return failure_.look(false);
}

JobActions JobRanks::handle(const RankOverdue& event) {
  const RankRecord& record = job_.rank(event.rank);
  const bool is_still_there = record.state == RankRecord::State::kRunning && record.pid == event.pid;
  return is_still_there && job_.phase == JobPhase::kRunning ? JobActions{EndRank{event.rank, SIGKILL}} : JobActions();
}

}  // namespace hvd::launch
