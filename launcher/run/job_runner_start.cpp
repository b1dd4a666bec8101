// These methods of JobRunner start a job: they open the sessions, start an engine that starts the agents, send the
// start messages, and restart a rank.
#include <signal.h>

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/command/rsh_template.h"
#include "launcher/placement/gpu_pinning.h"
#include "launcher/run/job_runner.h"

namespace hvd::launch {
namespace {

// Limits the output under way from all nodes together; kOutputCreditLeast is what one node needs to keep moving.
constexpr std::uint64_t kOutputCreditTotal = 16U << 20U;
constexpr std::uint64_t kOutputCreditLeast = 128U << 10U;
constexpr std::uint64_t kOutputCreditMost = 2U << 20U;
}  // namespace

void JobRunner::open_sessions() {
  SessionSink& sink = *this;
  for (const NodePlan& plan : agents_.nodes) {
    sessions_.push_back(std::make_unique<NodeSession>(loop_, plan, placement_.size, sink));
  }
  for (const NodePlan& plan : agents_.nodes) {
    open_session(plan.index);
  }
  engine_.start([this] { end_if_closed(); });
}

void JobRunner::open_session(int node) {
  NodeSession& session = *sessions_[static_cast<std::size_t>(node)];
  const TransportKind kind = choose_transport(spec_, session.plan().host);
  const std::string* relay = tree_.relay_of(node);
  log_.write(LogLevel::kDebug, session.plan().host.name + ": opening (" + transport_name(kind) +
                                   (relay == nullptr ? "" : " from " + *relay) + ")");
  session.open(tree_.way_to(node, transport_of(kind)));
}

void JobRunner::on_start_timeout() {
  if (engine_.is_there()) {
    engine_.on_start_timeout();
  } else {
    apply(StartTimedOut{});
  }
}

void JobRunner::on_ending(int node, const std::string& why) {
  log_.write(LogLevel::kDebug, agents_.nodes[static_cast<std::size_t>(node)].host.name + ": " + why);
  if (engine_.is_there()) {
    engine_.on_ending(node, why);
  } else {
    apply_notice(NodeEnding{node, why, hosts_.on_ending(node)});
  }
}

Transport& JobRunner::transport_of(TransportKind kind) const {
  switch (kind) {
    case TransportKind::kLocal:
      return *transports_.local;
    case TransportKind::kSsh:
      return *transports_.ssh;
    case TransportKind::kRsh:
      return *transports_.rsh;
    case TransportKind::kMpirun:
    case TransportKind::kSlurm:
    case TransportKind::kSpark:
    case TransportKind::kKubernetes:
      break;
  }
  return *transports_.dial_back;
}

void JobRunner::on_ready(int node, const ReadyMessage& ready) {
  NodeSession& session = *sessions_[static_cast<std::size_t>(node)];
  if (state_.is_over(node)) {
    session.close_input(hosts_.last_words(node));  // it was to join the job, which has no use for it any more
    return;
  }
  log_.write(LogLevel::kDebug, session.plan().host.name + ": agent " + ready.version + " is ready (pid " +
                                   std::to_string(ready.pid) + ", " + std::to_string(ready.cores.size()) + " cores)");
  if (engine_.is_there()) {
    // Check at once: an engine that starts another number of ranks would otherwise leave the missing ones awaited in
    // vain.
    const int rank = session.plan().ranks.front().rank;
    if (const auto seated = check_seat(placement_, rank, ready, ready.host_name); !seated.ok()) {
      return apply(Misplaced{seated.error()});
    }
  }
  const bool is_local = session.opened().is_local;
  // An agent that calls cannot connect a second time.
  const bool can_return = !is_local && spec_.launcher == LauncherKind::kOwn && !hosts_.has_joined(node);
  const Duration reconnect = can_return ? spec_.reconnect_timeout : Duration::zero();
  WelcomeMessage welcome;
  welcome.job_id = job_id_;
  welcome.size = hosts_.may_grow() ? kMostRanks : placement_.size;
  welcome.secret = secret_;
  welcome.token = token_;
  // Only remote sessions send heartbeats, since only their connections can break in silence. Each heartbeat wakes the
  // launcher twice for every node.
  welcome.heartbeat_ms =
      is_local
          ? 0
          : static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(spec_.heartbeat).count());
  welcome.reconnect_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(reconnect).count());
  welcome.output_credit = std::clamp(kOutputCreditTotal / agents_.nodes.size(), kOutputCreditLeast, kOutputCreditMost);
  if (!is_local) {
    session.watch_connection(spec_.heartbeat, reconnect, token_);
  }
  session.send(AgentMessage::kWelcome, welcome.encode());
  tree_.change(node, Relay::State::kUp);
  say_all(reporter_.on(news::NodeReady{node, ready}));
  show_status();
  apply(NodeReady{node});
  if (state_.is_over(node)) {
    session.close_input(hosts_.last_words(node));  // the job is ending
  }
}

void JobRunner::act(const StartRanks&) {
  loop_.cancel(start_timer_);
  loop_.cancel(slow_timer_);
  show_status();
  say_all(reporter_.on(news::AllReady{loop_.now() - began_}));
  if (spec_.timeout > Duration::zero()) {
    timeout_due_ = loop_.now() + spec_.timeout;
    arm_timeout();
  }
  std::vector<NodeView> views;
  for (const auto& session : sessions_) {
    views.push_back(NodeView{session->opened(), *session->ready()});
  }
  const JobView job{placement_, agents_, views};
  // Post it, because we are still carrying out the actions of the last event.
  if (const auto seated = engine_.is_there() ? check_seats(job) : Result<void>(); !seated.ok()) {
    loop_.post([this, why = seated.error()] { apply(Misplaced{why}); });
    return;
  }
  auto failed = find_missing_gpu(job);
  if (!failed) {
    failed = find_missing_interface(spec_, job);
  }
  if (failed) {
    loop_.post([this, failed = *failed] { on_start_failed(failed); });
    return;
  }
  auto messages =
      make_start_messages(spec_, job, job_id_, token_, programs_ ? programs_(job) : std::vector<RankProgram>());
  for (const std::string& text : start_warnings(spec_, job)) {
    say_all(reporter_.on(Note{LogLevel::kWarning, -1, text}));
  }
  std::vector<std::string> bodies;
  for (std::size_t node = 0; node < sessions_.size(); ++node) {
    bodies.push_back(messages[node].encode());
    if (bodies.back().size() > kAgentFrames.max_length) {
      const StartFailedMessage too_long{
          messages[node].ranks.front().rank,
          Error(Code::kResource, "what its node's " + std::to_string(messages[node].ranks.size()) +
                                     " ranks are to be told has " + std::to_string(bodies.back().size()) +
                                     " bytes, more than one message may have (" +
                                     std::to_string(kAgentFrames.max_length) +
                                     "); name more hosts, or set fewer and shorter variables")};
      loop_.post([this, too_long] { on_start_failed(too_long); });
      return;
    }
  }
  has_started_ = true;
  for (std::size_t node = 0; node < sessions_.size(); ++node) {
    for (const StartMessage::Rank& rank : messages[node].ranks) {
      if (!rank.cpus.empty()) {
        log_.write(LogLevel::kDebug, agents_.nodes[node].host.name + ": rank " + std::to_string(rank.rank) +
                                         " is bound to processors " + cpu_list_text(rank.cpus));
      }
    }
    sessions_[node]->send(AgentMessage::kStart, bodies[node]);
    bodies[node].clear();
  }
  if (spec_.restart_limit > 0) {
    starts_ = std::move(messages);
  }
  begin_input();
  hosts_.begin();
}

void JobRunner::begin_input() {
  if (spec_.input == InputMode::kNone || !input_from_.is_open()) {
    return;
  }
  std::vector<int> nodes;
  for (const NodePlan& node : agents_.nodes) {
    if (is_given_input(spec_, node)) {
      nodes.push_back(node.index);
    }
  }
  input_ = std::make_unique<JobInput>(loop_, std::move(input_from_), nodes,
                                      [this](int node, AgentMessage type, std::shared_ptr<const std::string> frame) {
                                        sessions_[static_cast<std::size_t>(node)]->send_frame(type, std::move(frame));
                                      });
}

void JobRunner::act(const RestartRank& action) {
  say_all(reporter_.on(news::RankRestarted{action.rank, action.cause, action.number, spec_.restart_limit}));
  const int node = agents_.node_of(action.rank).index;
  generations_.lose({action.rank}, action.cause,
                    restart_message(starts_[static_cast<std::size_t>(node)], action.rank, action.number));
  hosts_.on_restart(node);
}

void JobRunner::act(const GoOnWithout& action) {
  const std::string others = action.is_short ? "; too few are left, and wait for hosts, at most for --elastic-timeout"
                             : spec_.elastic_wait > Duration::zero()
                                 ? "; the others wait for another in its place, at most for --elastic-wait"
                                 : "; the others go on without it";
  say_all(reporter_.on(Note{LogLevel::kWarning, -1, action.cause + others}));
  generations_.lose(action.ranks, action.cause, std::nullopt);
  const int node = agents_.node_of(action.ranks.front()).index;
  hosts_.leave_alone(node, "has failed");
  hosts_.end_if_idle(node);
}

void JobRunner::act(const AwaitHosts&) {
  if (hosts_timer_ == 0) {
    hosts_timer_ = loop_.after(spec_.elastic_timeout, [this] {
      hosts_timer_ = 0;
      apply(HostsDue{});
    });
  }
}

void JobRunner::act(const EndNode& action) {
  parts_.end_node(action.node);
}

void JobRunner::act(const StartNode& action) {
  std::map<int, NodeView> views;
  for (const auto& session : sessions_) {
    const int node = session->plan().index;
    if (session->ready() && (node == action.node || !state_.is_over(node))) {
      views.emplace(node, NodeView{session->opened(), *session->ready()});
    }
  }
  const std::size_t index = static_cast<std::size_t>(action.node);
  const NodePlan& plan = placement_.nodes[index];
  const auto gpus = gpus_of_job(plan, views.at(action.node).ready.gpus);
  if (!gpus.ok()) {
    loop_.post([this, failed = StartFailedMessage{plan.ranks.front().rank, gpus.error()}] { on_start_failed(failed); });
    return;
  }
  StartMessage start =
      late_start_message(spec_, placement_, views, action.node, LateStart{job_id_, token_, generations_.number()});
  if (late_programs_) {
    late_programs_(placement_, views, action.node, start);
  }
  sessions_[index]->send(AgentMessage::kStart, start.encode());
  starts_[index] = std::move(start);
}

void JobRunner::on_leaving(int node, const std::string& why) {
  if (!hosts_.on_leaving(node, why)) {
    on_ending(node, why);
  }
}

}  // namespace hvd::launch
