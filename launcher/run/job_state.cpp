#include "launcher/run/job_state.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <iterator>

#include "launcher/run/exit_codes.h"
#include "launcher/run/unopened_hosts.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {
JobState::JobState(const Placement& placement, const std::vector<int>& servers, int restart_limit, Duration grace,
                   int least)
    : placement_(placement),
      nodes_(placement.nodes.size(), NodeState::kOpening),
      ranks_(static_cast<std::size_t>(placement.size)),
      is_server_(static_cast<std::size_t>(placement.size), false),
      order_(placement.size, grace),
      restart_limit_(restart_limit),
      least_(least > 0 ? least : placement.size) {
  for (const int rank : servers) {
    is_server_[static_cast<std::size_t>(rank)] = true;
  }
}

std::vector<JobAction> JobState::on(const JobEvent& event) {
  if (phase_ == JobPhase::kDone) {
    note_late(event);
    return {};
  }
  Actions actions = std::visit([this](const auto& e) { return handle(e); }, event);
  if (phase_ == JobPhase::kDone && is_awaiting_end_) {
    is_awaiting_end_ = false;  // how the rank ended will never be known
    Actions with_report;
    with_report.emplace_back(ReportCause{});
    std::move(actions.begin(), actions.end(), std::back_inserter(with_report));
    return with_report;
  }
  return actions;
}

JobState::Actions JobState::handle(const NodeReady& event) {
  NodeState& node = nodes_[static_cast<std::size_t>(event.node)];
  if (node != NodeState::kOpening) {
    return {};
  }
  if (phase_ == JobPhase::kOpening) {
    node = NodeState::kReady;
    return start_if_open();
  }
  if (phase_ == JobPhase::kRunning && !is_letting_go_) {
    node = NodeState::kReady;
    return {StartNode{event.node}};
  }
  node = NodeState::kLost;  // it comes too late
  return finish_if_over();
}

JobState::Actions JobState::handle(const NodeLost& event) {
  NodeState& node = nodes_[static_cast<std::size_t>(event.node)];
  const NodePlan& plan = placement_.nodes[static_cast<std::size_t>(event.node)];
  const NodeState before = std::exchange(node, NodeState::kLost);
  if (before == NodeState::kDone) {
    return {};  // the node has already reported all there was
  }
  if (phase_ == JobPhase::kOpening) {
    // Wait for the other nodes, so that the error can name all that cannot be reached.
    unopened_.emplace_back(event.node, event.why);
    return start_if_open();
  }
  Cause cause;
  cause.exit_code = exit_code::kNodeLost;
  cause.kind = Cause::Kind::kLoss;
  cause.lines.push_back("node " + plan.host.name + " was lost, with " + ranks_text(plan) + ": " + event.why.message());
  const std::vector<int> there = ranks_there(plan);
  if (before == NodeState::kOpening) {
    return phase_ != JobPhase::kRunning
               ? finish_if_over()
               : lose(there, event.why.message() + "; " + plan.host.name + " does not join", short_for_.has_value());
  }
  if (least_ < placement_.size && there.empty() && phase_ == JobPhase::kRunning) {
    return finish_if_over();  // all of its ranks had ended, or were done without before
  }
  if (are_newcomers(there)) {
    return lose(there, cause.lines.front(), short_for_.has_value());
  }
  if (auto others = do_without(there, cause.lines.front())) {
    return *std::move(others);
  }
  for (const int rank : there) {
    ranks_[static_cast<std::size_t>(rank)].state = RankRecord::State::kLost;
    order_.note_end(rank, false, {});
  }
  Actions actions = stop_for(std::move(cause), SIGTERM);
  const Actions end = finish_if_over();
  actions.insert(actions.end(), end.begin(), end.end());
  return actions;
}

JobState::Actions JobState::handle(const NodeEnding& event) {
  const NodePlan& plan = placement_.nodes[static_cast<std::size_t>(event.node)];
  Cause cause;
  cause.exit_code = exit_code::kNodeLost;
  cause.kind = Cause::Kind::kLoss;
  cause.lines.push_back("the agent on " + plan.host.name + " ends, with " + ranks_text(plan) + ": " + event.why);
  const std::vector<int> there = ranks_there(plan);
  if (are_newcomers(there)) {
    return lose(there, cause.lines.front(), short_for_.has_value());
  }
  if (auto others = event.is_last ? std::nullopt : do_without(there, cause.lines.front())) {
    return *std::move(others);
  }
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const RankStarted& event) {
  RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  record.state = RankRecord::State::kRunning;
  record.pid = event.pid;
  record.has_joined = false;
  order_.note_start(event.rank);
  return {};
}

JobState::Actions JobState::handle(const RankJoined& event) {
  ranks_[static_cast<std::size_t>(event.rank)].has_joined = true;
  order_.note_joined(event.rank);
  return {};
}

JobState::Actions JobState::handle(const RankStartFailed& event) {
  Cause cause;
  cause.exit_code = event.why.code() == Code::kNotFound ? exit_code::kNoProgram : exit_code::kStartFailed;
  cause.lines.push_back("cannot start rank " + std::to_string(event.rank) + " on " +
                        placement_.node_of(event.rank).host.name + ": " + event.why.message());
  const RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  if (is_newcomer(event.rank)) {
    return lose({event.rank}, cause.lines.front(), short_for_.has_value());
  }
  if (record.restarts > 0) {
    if (auto others = do_without({event.rank}, cause.lines.front())) {
      return *std::move(others);
    }
  }
  return stop_for(std::move(cause), SIGTERM);
}

JobState::Actions JobState::handle(const RankExited& event) {
  RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  if (record.state == RankRecord::State::kLost) {
    return let_others_go();  // it had been done without already
  }
  if (record.is_released) {
    record.state = RankRecord::State::kEnded;
    record.status = event.status;
    order_.note_end(event.rank, false, event.at);
    const NodePlan& node = placement_.node_of(event.rank);
    return phase_ == JobPhase::kRunning && ranks_there(node).empty() ? Actions{EndNode{node.index}} : let_others_go();
  }
  const bool is_new = is_newcomer(event.rank);
  record.state = RankRecord::State::kEnded;
  record.status = event.status;
  record.detail = event.detail;
  const bool was_let_go = is_letting_go_ && is_optional(event.rank);
  const bool is_good = event.status.is_success() || was_let_go;
  order_.note_end(event.rank, !is_good, event.at);
  if (is_awaiting_end_ && cause_->rank == event.rank) {
    return settle_cause(event);
  }
  if (is_good) {
    const Actions news = look_again();
    return news.empty() ? let_others_go() : news;
  }
  record.has_followed = !cause_;
  note_error(event.rank);
  if (all_fail_again()) {
    return look_for_cause(false);
  }
  if (auto others = leave_host_of(event.rank)) {
    return *std::move(others);
  }
  if (is_worth_restarting(record) && !excludes_hosts_) {
    record.state = RankRecord::State::kPending;
    record.is_member = false;
    ++record.restarts;
    last_loss_ = describe(event.rank);
    return {RestartRank{event.rank, ++restarts_, last_loss_}};
  }
  // The others train without it: what ends it is of its host, or of its new start.
  if (is_new || (!record.is_member && phase_ == JobPhase::kRunning && (can_go_on() || short_for_))) {
    return lose({event.rank}, describe(event.rank), short_for_.has_value());
  }
  return look_for_cause(false);
}

JobState::Actions JobState::handle(const RankFailing& event) {
  const RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  if (cause_ || record.state != RankRecord::State::kRunning) {
    return {};  // it failed because the job is ending, or it ended before its report came
  }
  order_.note_news(event.rank, event.news, event.at);
  if (order_.told(event.rank) == nullptr) {
    return look_again();
  }
  if (is_worth_restarting(record)) {
    return {AwaitEnd{event.rank, record.pid}};
  }
  return look_for_cause(false);
}

JobState::Actions JobState::handle(const RankComplained& event) {
  if (event.has_lost_a_peer) {
    order_.note_loss(event.rank);
  } else {
    order_.note_sign(event.rank, event.at);
  }
  return look_again();
}

JobState::Actions JobState::handle(const CauseDue&) {
  is_awaiting_cause_ = false;
  return look_for_cause(true);
}

JobState::Actions JobState::handle(const RankOverdue& event) {
  const RankRecord& record = ranks_[static_cast<std::size_t>(event.rank)];
  const bool is_still_there = record.state == RankRecord::State::kRunning && record.pid == event.pid;
  return is_still_there && phase_ == JobPhase::kRunning ? Actions{EndRank{event.rank, SIGKILL}} : Actions();
}

JobState::Actions JobState::look_for_cause(bool is_late) {
  if (cause_) {
    return {};
  }
  const FailureOrder::Finding found = order_.first(is_late);
  if (found.rank >= 0) {
    return stop_for_rank(found.rank);
  }
  if (found.must_wait && !is_awaiting_cause_) {
    is_awaiting_cause_ = true;
    return {AwaitCause{}};
  }
  return {};
}

JobState::Actions JobState::stop_for_rank(int rank) {
  const RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  is_awaiting_end_ = record.state == RankRecord::State::kRunning;
  Cause cause;
  cause.kind = Cause::Kind::kLoss;
  cause.rank = rank;
  cause.exit_code = is_awaiting_end_ ? std::max(order_.told(rank)->exit_code, 1) : record.status.shell_code();
  cause.lines.push_back(describe_cause(rank));
  if (const std::string leader = describe_leader(rank); !leader.empty()) {
    cause.lines.push_back(leader);
  }
  Actions actions = stop_for(std::move(cause), SIGTERM);
  was_told_as_failing_ = is_awaiting_end_;
  if (is_awaiting_end_) {
    // Wait for the rank's end: its exit code becomes the job's, and its exit functions may have much to save. The other
    // ranks get SIGTERM before the news. In the opposite order each would print an exception of its own.
    actions = {ReportFailing{}, StopNodes{SIGTERM, {rank}}, TellRanks{cause_->lines.front()}};
  }
  return actions;
}

JobState::Actions JobState::settle_cause(const RankExited& event) {
  is_awaiting_end_ = false;
  const bool was_killed = event.status.kind == ExitStatus::Kind::kSignalled && event.status.value == SIGKILL;
  if (was_killed && !event.status.out_of_memory) {
    cause_->lines.front() += "; it did not end within the time of grace, and was killed";
  } else {
    cause_->lines.front() = describe_cause(event.rank);
    cause_->exit_code = event.status.is_success() ? cause_->exit_code : event.status.shell_code();
  }
  return {ReportCause{}};
}

std::string JobState::describe_cause(int rank) const {
  if (all_fail_again()) {
    return describe(rank) + " (" + ranks_[static_cast<std::size_t>(rank)].failed_with +
           "); every rank has failed twice with the same error, and has committed nothing in between";
  }
  const bool is_limit_reached = restarts_ > 0 && restarts_ == restart_limit_;
  return describe(rank) + (is_limit_reached
                               ? ", after " + std::to_string(restarts_) + (restarts_ == 1 ? " restart" : " restarts") +
                                     " of ranks, the most that are allowed"
                               : "");
}

std::string JobState::describe_leader(int rank) const {
  const int leader = order_.follows(rank) ? order_.cause_of(rank) : -1;
  if (leader < 0) {
    return "";
  }
  const RankRecord& record = ranks_[static_cast<std::size_t>(leader)];
  const bool has_ended = record.state == RankRecord::State::kEnded;
  return "rank " + std::to_string(leader) + " on " + placement_.node_of(leader).host.name +
         (has_ended ? " had left the job before, and " + record.status.text()
                    : ", which it names as the cause, has not failed");
}

bool JobState::is_optional(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return is_server_[index] || !ranks_[index].is_member;
}

JobState::Actions JobState::let_others_go() {
  bool is_any_left = false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool is_lost = ranks_[rank].state == RankRecord::State::kLost;
    const bool has_ended = is_lost || ranks_[rank].state == RankRecord::State::kEnded;
    if (!has_ended && !is_optional(static_cast<int>(rank))) {
      return {};
    }
    // The agent of a rank that was released does not know that it will not be started again.
    is_any_left = is_any_left || is_lost || !has_ended || ranks_[rank].is_released;
  }
  if (!is_any_left || is_letting_go_ || phase_ != JobPhase::kRunning) {
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
  if (is_awaiting_end_) {
    return {StopNodes{event.signo}};  // also to the rank that was spared until now
  }
  Cause cause;
  cause.exit_code = 128 + event.signo;
  cause.lines.push_back("hvdrun got " + signal_name(event.signo));
  cause.hint = "once more to kill the ranks at once";
  return stop_for(std::move(cause), event.signo);
}

void JobState::note_late(const JobEvent& event) {
  interrupts_ += std::holds_alternative<Interrupted>(event) ? 1 : 0;
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
  std::replace(nodes_.begin(), nodes_.end(), NodeState::kReady, NodeState::kLost);
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
  cause.kind = Cause::Kind::kUnreached;
  // This machine needs no connection, so what failed here is the agent's start.
  cause.exit_code = exit_code::kStartFailed;
  std::vector<std::pair<std::string, std::string>> hosts;
  for (const auto& [node, why] : unopened_) {
    const HostSpec& host = placement_.nodes[static_cast<std::size_t>(node)].host;
    hosts.emplace_back(host.name, why.message());
    cause.exit_code = is_here(host) ? cause.exit_code : exit_code::kUnreachable;
  }
  cause.lines = unopened_lines(hosts);
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
  if (phase_ == JobPhase::kOpening || phase_ == JobPhase::kDone) {
    return {};
  }
  // Who was about to join a job that ends is not waited for.
  const auto is_there = [](NodeState node) { return node == NodeState::kReady; };
  if (std::any_of(nodes_.begin(), nodes_.end(), is_there)) {
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
  const FailureNews* told = order_.told(rank);
  const bool is_failing = record.state == RankRecord::State::kRunning && told != nullptr;
  return "rank " + std::to_string(rank) + " on " + placement_.node_of(rank).host.name + " (pid " +
         std::to_string(record.pid) + ") " + (is_failing ? "failed: " + told->what : record.status.text());
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
