#include "launcher/run/job_state.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>

#include "launcher/run/exit_codes.h"

namespace hvd::launch {
namespace {

// "rank 3", "ranks 4-7"
std::string ranks_text(const NodePlan& node) {
  const std::string first = std::to_string(node.ranks.front().rank);
  const std::string last = std::to_string(node.ranks.back().rank);
  return first == last ? "rank " + first : "ranks " + first + "-" + last;
}

}  // namespace

JobState::JobState(const Placement& placement, const std::vector<int>& servers, int restart_limit)
    : placement_(placement),
      nodes_(placement.nodes.size(), NodeState::kOpening),
      ranks_(static_cast<std::size_t>(placement.size)),
      is_server_(static_cast<std::size_t>(placement.size), false),
      restart_limit_(restart_limit) {
  for (const int rank : servers) {
    is_server_[static_cast<std::size_t>(rank)] = true;
  }
}

std::vector<JobAction> JobState::on(const JobEvent& event) {
  if (phase_ == JobPhase::kDone) {
    note_late(event);
    return {};
  }
  return std::visit([this](const auto& e) { return handle(e); }, event);
}

JobState::Actions JobState::handle(const NodeReady& event) {
  nodes_[static_cast<std::size_t>(event.node)] = NodeState::kReady;
  return start_if_open();
}

JobState::Actions JobState::handle(const NodeLost& event) {
  NodeState& node = nodes_[static_cast<std::size_t>(event.node)];
  const NodePlan& plan = placement_.nodes[static_cast<std::size_t>(event.node)];
  const NodeState before = std::exchange(node, NodeState::kLost);
  if (before == NodeState::kDone) {
    return {};  // it had nothing left to tell
  }
  if (phase_ == JobPhase::kOpening) {
    // The others get their chance to be named too.
    unopened_.emplace_back(event.node, event.why);
    return start_if_open();
  }
  for (const RankPlan& rank : plan.ranks) {
    RankRecord& record = ranks_[static_cast<std::size_t>(rank.rank)];
    if (record.state == RankRecord::State::kRunning || record.state == RankRecord::State::kPending) {
      record.state = RankRecord::State::kLost;
    }
  }
  Cause cause;
  cause.exit_code = exit_code::kNodeLost;
  cause.lines.push_back("node " + plan.host.name + " was lost, with " + ranks_text(plan) + ": " + event.why.message());
  Actions actions = stop_for(std::move(cause), SIGTERM);
  const Actions end = finish_if_over();
  actions.insert(actions.end(), end.begin(), end.end());
  return actions;
}

JobState::Actions JobState::handle(const NodeEnding& event) {
  const NodePlan& plan = placement_.nodes[static_cast<std::size_t>(event.node)];
  Cause cause;
  cause.exit_code = exit_code::kNodeLost;
  cause.lines.push_back("the agent on " + plan.host.name + " ends, with " + ranks_text(plan) + ": " + event.why);
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const RankStarted& event) {
  RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  record.state = RankRecord::State::kRunning;
  record.pid = event.pid;
  record.has_joined = false;
  return {};
}

JobState::Actions JobState::handle(const RankJoined& event) {
  ranks_[static_cast<std::size_t>(event.rank)].has_joined = true;
  return {};
}

JobState::Actions JobState::handle(const RankStartFailed& event) {
  Cause cause;
  cause.exit_code = event.why.code() == Code::kNotFound ? exit_code::kNoProgram : exit_code::kStartFailed;
  cause.lines.push_back("cannot start rank " + std::to_string(event.rank) + " on " +
                        placement_.node_of(event.rank).host.name + ": " + event.why.message());
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const RankExited& event) {
  RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  record.state = RankRecord::State::kEnded;
  record.status = event.status;
  record.detail = event.detail;
  const bool was_let_go = is_letting_go_ && is_server_[static_cast<std::size_t>(event.rank)];
  if (event.status.is_success() || was_let_go) {
    return let_servers_go();
  }
  if (is_worth_restarting(record)) {
    record.state = RankRecord::State::kPending;
    return {RestartRank{event.rank, ++restarts_, describe(event.rank)}};
  }
  Cause cause;
  cause.exit_code = event.status.shell_code();
  cause.rank = event.rank;
  cause.lines.push_back(describe(event.rank));
  if (restarts_ > 0 && restarts_ == restart_limit_) {
    cause.lines.back() += ", after " + std::to_string(restarts_) + (restarts_ == 1 ? " restart" : " restarts") +
                          " of ranks, the most that are allowed";
  }
  return stop_for(std::move(cause), SIGTERM);
}

// A script that fails before it joins the job would do so again. When a rank has ended in order, it will not be there
// for the others to meet.
bool JobState::is_worth_restarting(const RankRecord& failed) const {
  const auto has_ended_well = [](const RankRecord& record) {
    return record.state == RankRecord::State::kEnded && record.status.is_success();
  };
  return phase_ == JobPhase::kRunning && restarts_ < restart_limit_ && failed.has_joined &&
         std::none_of(ranks_.begin(), ranks_.end(), has_ended_well);
}

// A parameter server never ends by itself.
JobState::Actions JobState::let_servers_go() {
  bool any_server_runs = false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool has_ended = ranks_[rank].state == RankRecord::State::kEnded;
    if (!is_server_[rank] && !has_ended) {
      return {};
    }
    any_server_runs = any_server_runs || (is_server_[rank] && !has_ended);
  }
  if (!any_server_runs || is_letting_go_ || phase_ != JobPhase::kRunning) {
    return {};
  }
  is_letting_go_ = true;
  return {StopNodes{SIGTERM}};
}

JobState::Actions JobState::handle(const NodeDone& event) {
  nodes_[static_cast<std::size_t>(event.node)] = NodeState::kDone;
  return finish_if_over();
}

JobState::Actions JobState::handle(const Interrupted& event) {
  ++interrupts_;
  if (interrupts_ > 2) {
    phase_ = JobPhase::kDone;
    return {Finish{}};
  }
  if (interrupts_ == 2) {
    return {StopNodes{SIGKILL}};
  }
  Cause cause;
  cause.exit_code = 128 + event.signo;
  cause.lines.push_back("hvdrun got " + signal_name(event.signo));
  cause.hint = "once more to kill the ranks at once";
  return stop_for(std::move(cause), event.signo);
}

void JobState::note_late(const JobEvent& event) {
  if (std::holds_alternative<FilesFailed>(event)) {
    has_kept_all_ = false;
  } else if (const auto* failed = std::get_if<OutputFailed>(&event); failed != nullptr && !cause_) {
    cause_ = cause_of(*failed);
  }
}

Cause JobState::cause_of(const OutputFailed& event) {
  Cause cause;
  const bool reader_gone = event.why.sys_errno() == EPIPE;
  cause.exit_code = reader_gone ? exit_code::kReaderGone : exit_code::kOutputFailed;
  cause.lines.push_back(event.why.message());
  return cause;
}

JobState::Actions JobState::handle(const OutputFailed& event) {
  return stop_for(cause_of(event), SIGTERM);
}

JobState::Actions JobState::handle(const FilesFailed&) {
  has_kept_all_ = false;
  return {};
}

JobState::Actions JobState::handle(const EngineEnded& event) {
  Cause cause;
  if (phase_ == JobPhase::kOpening) {
    const bool is_unreachable = event.why.code() == Code::kUnreachable || event.why.code() == Code::kTimeout;
    cause.exit_code = event.why.code() == Code::kInvalid ? exit_code::kUsage
                      : is_unreachable                   ? exit_code::kUnreachable
                                                         : exit_code::kStartFailed;
    cause.lines.push_back("the ranks could not be started: " + event.why.message());
  } else {
    cause.exit_code = exit_code::kNodeLost;
    cause.lines.push_back("while the ranks ran, " + event.why.message());
  }
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const Misplaced& event) {
  Cause cause;
  cause.exit_code = exit_code::kUsage;
  cause.lines.push_back(event.why.message());
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const TimedOut&) {
  Cause cause;
  cause.exit_code = exit_code::kTimedOut;
  cause.lines.emplace_back("the job has run for as long as --timeout allows");
  return stop_for(std::move(cause), SIGTERM);
}

int JobState::exit_code() const {
  if (cause_) {
    return cause_->exit_code;
  }
  return has_kept_all_ ? 0 : exit_code::kOutputFailed;
}

JobState::Actions JobState::handle(const StartTimedOut&) {
  if (phase_ != JobPhase::kOpening) {
    return {};
  }
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node] == NodeState::kOpening) {
      nodes_[node] = NodeState::kLost;
      unopened_.emplace_back(static_cast<int>(node),
                             Error(Code::kTimeout, placement_.nodes[node].host.name +
                                                       ": no answer within --start-timeout; is it up? try: ssh " +
                                                       placement_.nodes[node].host.name + " true"));
    }
  }
  return start_if_open();
}

JobState::Actions JobState::handle(const StopTimedOut&) {
  phase_ = JobPhase::kDone;
  return {Finish{}};
}

JobState::Actions JobState::start_if_open() {
  if (phase_ != JobPhase::kOpening || !every_node(NodeState::kReady, NodeState::kLost)) {
    return {};
  }
  if (unopened_.empty()) {
    phase_ = JobPhase::kRunning;
    return {StartRanks{}};
  }
  Cause cause;
  cause.exit_code = exit_code::kUnreachable;
  for (const auto& [node, why] : unopened_) {
    cause.lines.push_back(why.message());
  }
  cause_ = std::move(cause);
  phase_ = JobPhase::kDone;
  return {ReportCause{}, Finish{}};
}

JobState::Actions JobState::stop_for(Cause cause, int signo) {
  if (cause_) {
    return {};
  }
  cause_ = std::move(cause);
  if (phase_ == JobPhase::kOpening) {
    phase_ = JobPhase::kDone;
    return {ReportCause{}, Finish{}};
  }
  phase_ = JobPhase::kStopping;
  return {ReportCause{}, TellRanks{cause_->lines.front()}, StopNodes{signo}};
}

JobState::Actions JobState::finish_if_over() {
  if (phase_ == JobPhase::kOpening || phase_ == JobPhase::kDone || !every_node(NodeState::kDone, NodeState::kLost)) {
    return {};
  }
  phase_ = JobPhase::kDone;
  return {Finish{}};
}

bool JobState::every_node(NodeState a, NodeState b) const {
  return std::all_of(nodes_.begin(), nodes_.end(), [a, b](NodeState node) { return node == a || node == b; });
}

std::string JobState::describe(int rank) const {
  const RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  return "rank " + std::to_string(rank) + " on " + placement_.node_of(rank).host.name + " (pid " +
         std::to_string(record.pid) + ") " + record.status.text();
}

std::vector<std::string> JobState::silent_hosts() const {
  std::vector<std::string> hosts;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node] == NodeState::kOpening) {
      hosts.push_back(placement_.nodes[node].host.name);
    }
  }
  return hosts;
}

}  // namespace hvd::launch
