// These methods of JobRunner start a job: they open the sessions, start an engine that starts the agents, send the
// start messages, and restart a rank.
#include <signal.h>

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/command/rsh_template.h"
#include "launcher/joining/joiner_seats.h"
#include "launcher/placement/gpu_pinning.h"
#include "launcher/run/exit_codes.h"
#include "launcher/run/job_runner.h"

namespace hvd::launch {
namespace {

// Limits the output under way from all nodes together; kOutputCreditLeast is what one node needs to keep moving.
constexpr std::uint64_t kOutputCreditTotal = 16U << 20U;
constexpr std::uint64_t kOutputCreditLeast = 128U << 10U;
constexpr std::uint64_t kOutputCreditMost = 2U << 20U;
// When an engine begins to end its agents, hvdrun waits this long for the agent of the failed rank to report why.
constexpr auto kSettleTime = std::chrono::seconds(1);
// So many machines may have called before the job runs. Each has proven itself, but a loop in a script can do that too.
constexpr std::size_t kMostEarlyJoiners = 1024;

}  // namespace

void JobRunner::open_sessions() {
  SessionSink& sink = *this;
  for (const NodePlan& plan : agents_.nodes) {
    sessions_.push_back(std::make_unique<NodeSession>(loop_, plan, placement_.size, sink));
  }
  for (const NodePlan& plan : agents_.nodes) {
    open_session(plan.index);
  }
  if (transports_.engine != nullptr) {
    start_engine();
  }
}

void JobRunner::open_session(int node) {
  NodeSession& session = *sessions_[static_cast<std::size_t>(node)];
  const TransportKind kind = choose_transport(spec_, session.plan().host);
  const std::string* relay = tree_.relay_of(node);
  log_.write(LogLevel::kDebug, session.plan().host.name + ": opening (" + transport_name(kind) +
                                   (relay == nullptr ? "" : " from " + *relay) + ")");
  session.open(tree_.way_to(node, transport_of(kind)));
}

void JobRunner::start_engine() {
  log_.write(LogLevel::kDebug, "starting: " + shown_words(transports_.engine->command().argv));
  Engine::Handlers handlers;
  handlers.on_line = [this](const std::string& line) { on_engine_line(line); };
  handlers.on_over = [this](const Error& why) { on_engine_over(why); };
  if (const auto started = transports_.engine->start(std::move(handlers)); !started.ok()) {
    loop_.post([this, why = started.error()] { apply(EngineEnded{why}); });
  }
}

void JobRunner::on_engine_line(const std::string& line) {
  const std::string& name = transports_.engine->command().name;
  if (state_.cause() || is_finishing_) {
    log_.write(LogLevel::kDebug, name + ": " + line);  // it is about the end that hvdrun itself caused
  } else {
    say_all(reporter_.on(news::EngineLine{name, line}));
  }
}

void JobRunner::on_engine_over(const Error& why) {
  log_.write(LogLevel::kDebug, why.message());
  apply(EngineEnded{why});
  end_if_closed();
}

// Under an engine it is the engine that ends the agent, because it has noticed the failure of a rank, or was itself
// asked to end. The agent of the failed rank is then about to report the first failure, so the engine's lines are
// reported only if that report does not come.
void JobRunner::on_ending(int node, const std::string& why) {
  const NodePlan& plan = agents_.nodes[static_cast<std::size_t>(node)];
  log_.write(LogLevel::kDebug, plan.host.name + ": " + why);
  if (transports_.engine == nullptr) {
    apply(NodeEnding{node, why});
    return;
  }
  if (settle_timer_ != 0) {
    return;
  }
  const std::string who = "the agent of rank " + std::to_string(plan.ranks.front().rank) + " on " + plan.host.name;
  settle_timer_ = loop_.after(kSettleTime, [this, text = who + " was told to end (" + why + ")"] {
    const std::string words = transports_.engine->first_words();
    apply(EngineEnded{Error(
        Code::kLostPeer, text + (words.empty() ? "" : "; " + transports_.engine->command().name + " said: " + words))});
  });
}

void JobRunner::on_start_timeout() {
  if (transports_.engine == nullptr) {
    return apply(StartTimedOut{});
  }
  const std::vector<std::string> silent = state_.silent_hosts();
  const auto others = std::count_if(silent.begin(), silent.end(), [&](const auto& h) { return h != silent.front(); });
  apply(EngineEnded{Error(Code::kTimeout, std::to_string(silent.size()) + " of " + std::to_string(placement_.size) +
                                              " agents have not called back within --start-timeout, of " +
                                              silent.front() + (others > 0 ? " and other hosts" : ""))});
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
    session.close_input(bye_to(node));  // it was to join the job, which has no use for it any more
    return;
  }
  log_.write(LogLevel::kDebug, session.plan().host.name + ": agent " + ready.version + " is ready (pid " +
                                   std::to_string(ready.pid) + ", " + std::to_string(ready.cores.size()) + " cores)");
  if (transports_.engine != nullptr) {
    // Check at once: an engine that starts another number of ranks would otherwise leave the missing ones awaited in
    // vain.
    const int rank = session.plan().ranks.front().rank;
    if (const auto seated = check_seat(placement_, rank, ready, ready.host_name); !seated.ok()) {
      return apply(Misplaced{seated.error()});
    }
  }
  const bool is_local = session.opened().is_local;
  // An agent that calls cannot connect a second time.
  const bool can_return = !is_local && spec_.launcher == LauncherKind::kOwn && !has_joined(node);
  const Duration reconnect = can_return ? spec_.reconnect_timeout : Duration::zero();
  WelcomeMessage welcome;
  welcome.job_id = job_id_;
  welcome.size = growing_ != nullptr ? kMostRanks : placement_.size;
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
    session.close_input(bye_to(node));  // the job is ending
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
  if (const auto seated = transports_.engine != nullptr ? check_seats(job) : Result<void>(); !seated.ok()) {
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
  if (hosts_ != nullptr) {
    hosts_->begin();
  }
  for (const int number : std::exchange(early_joiners_, {})) {
    loop_.post([this, number] { seat_joiner(number); });
  }
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
  if (leaving_nodes_.contains(node)) {
    loop_.post([this] { update_leaving(); });  // it is no member any more, and so released at once
  }
}

void JobRunner::act(const GoOnWithout& action) {
  const std::string others = action.is_short ? "; too few are left, and wait for hosts, at most for --elastic-timeout"
                             : spec_.elastic_wait > Duration::zero()
                                 ? "; the others wait for another in its place, at most for --elastic-wait"
                                 : "; the others go on without it";
  say_all(reporter_.on(Note{LogLevel::kWarning, -1, action.cause + others}));
  generations_.lose(action.ranks, action.cause, std::nullopt);
  const int node = agents_.node_of(action.ranks.front()).index;
  leave_alone(node, "has failed");
  end_if_idle(node);
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
  StopMessage stop;
  stop.signal = SIGTERM;
  stop.grace_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(spec_.grace).count());
  sessions_[static_cast<std::size_t>(action.node)]->send(AgentMessage::kStop, stop.encode());
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

// ---- hosts that join and leave the running job ----

void JobRunner::follow_hosts(Placement& placement, HostSource& source) {
  const HostOffers::Limits limits{spec_.discovery.most_ranks > 0 ? spec_.discovery.most_ranks : kMostRanks,
                                  spec_.discovery.cooldown_least, spec_.discovery.cooldown_most};
  hosts_ = std::make_unique<HostUpdates>(loop_, source, spec_.hosts, limits, host_sink());
  growing_ = &placement;
  state_.let_grow();
}

void JobRunner::take_joiners(Placement& placement, JoinCalls& calls) {
  joins_ = &calls;
  growing_ = &placement;
  state_.let_grow();
}

std::optional<std::vector<HostedRank>> JobRunner::hosted_ranks() const {
  std::vector<HostedRank> there;
  for (const int rank : state_.ranks_to_keep()) {
    const NodePlan& node = placement_.node_of(rank);
    const int local_rank = node.ranks[static_cast<std::size_t>(rank - node.ranks.front().rank)].local_rank;
    there.push_back({rank, node.host.name, local_rank, has_joined(node.index)});
  }
  return there.empty() ? std::nullopt : std::optional(std::move(there));
}

HostUpdates::Sink JobRunner::host_sink() {
  HostUpdates::Sink sink;
  sink.there = [this] { return hosted_ranks(); };
  sink.join = [this](const JoiningRanks& ranks) { open_session(add_node(ranks)); };
  sink.set_leaving = [this](const std::vector<int>& ranks) {
    leaving_hosts_ = ranks;
    update_leaving();
  };
  sink.use = [this] { return host_use(); };
  sink.say = [this](const std::string& line) { say_all(reporter_.on(Note{LogLevel::kWarning, -1, line})); };
  return sink;
}

void JobRunner::update_leaving() {
  std::vector<int> leaving = leaving_hosts_;
  for (const int node : leaving_nodes_) {
    for (const RankPlan& rank : agents_.nodes[static_cast<std::size_t>(node)].ranks) {
      leaving.push_back(rank.rank);
    }
  }
  std::vector<int> outside;  // they have nothing to lose yet
  for (const int rank : leaving) {
    const RankRecord& record = state_.ranks()[static_cast<std::size_t>(rank)];
    if (!record.is_member && !record.is_released) {
      outside.push_back(rank);
    }
  }
  generations_.set_leaving(leaving);
  apply(RanksReleased{outside});
}

int JobRunner::add_node(const JoiningRanks& ranks) {
  growing_->add(ranks.host, ranks.first_local, ranks.count);
  agents_.add(ranks.host, ranks.first_local, ranks.count);
  const int node = agents_.nodes.back().index;
  apply(NodeJoining{node});
  starts_.emplace_back();
  if (const auto kept = logs_.add_node(ranks.count); !kept.ok()) {
    say_all(reporter_.on(Note{LogLevel::kError, node, kept.error().message() + "; what its ranks print is not kept"}));
  }
  SessionSink& sink = *this;
  sessions_.push_back(std::make_unique<NodeSession>(loop_, agents_.nodes.back(), placement_.size, sink));
  say_all(reporter_.on(news::NodeJoining{node}));
  generations_.add(ranks.count);
  return node;
}

void JobRunner::seat_joiner(int number) {
  if (joins_->waiting() > kMostEarlyJoiners) {
    return refuse_joiner(number, Error(Code::kResource, "too many machines wait for the job to begin"));
  }
  if (state_.phase() == JobPhase::kOpening) {
    early_joiners_.push_back(number);
    return;
  }
  if (!joins_->is_there(number)) {
    return;  // it has gone while it waited
  }
  auto there = hosted_ranks();
  if (!there) {
    return refuse_joiner(number, Error(Code::kResource, "the job ends, and takes nobody any more"));
  }
  JobRoom room;
  for (const auto& session : sessions_) {
    const NodePlan& plan = session->plan();
    if (session->ready() && !state_.is_over(plan.index)) {
      room.nodes.push_back({plan.host.name, session->ready()->machine});
    }
  }
  room.ranks = *std::move(there);
  room.most_ranks = spec_.discovery.most_ranks > 0 ? spec_.discovery.most_ranks : kMostRanks;
  room.version = joins_->version();
  const auto seats = launch::seat_joiner(joins_->ready(number), joins_->address_of(number), room);
  if (!seats.ok()) {
    return refuse_joiner(number, seats.error());
  }
  const int node = add_node(seats.value());
  joined_nodes_.insert(node);
  joins_->seat(number, agents_.nodes.back().ranks.front().rank);
  sessions_.back()->open(*joins_);
}

void JobRunner::refuse_joiner(int number, const Error& why) {
  say_all(reporter_.on(
      Note{LogLevel::kWarning, -1,
           "a machine at " + joins_->address_of(number) + " has called to join, and is refused: " + why.message()}));
  joins_->refuse(number, {why.code() == Code::kInvalid ? exit_code::kUsage : exit_code::kStartFailed,
                          "job " + job_id_ + " refuses this machine: " + why.message()});
}

ByeMessage JobRunner::bye_to(int node) const {
  if (!has_joined(node)) {
    return {};
  }
  if (is_finishing_) {
    const int code = state_.exit_code();
    return {code, "job " + job_id_ + " has ended" + (code == 0 ? "" : ", with code " + std::to_string(code))};
  }
  bool is_released = false;
  for (const RankPlan& rank : placement_.nodes[static_cast<std::size_t>(node)].ranks) {
    const RankRecord& record = state_.ranks()[static_cast<std::size_t>(rank.rank)];
    is_released = is_released || record.is_released;
    if (!record.is_released && !record.status.is_success()) {
      return {record.status.shell_code(), "job " + job_id_ + " goes on without rank " + std::to_string(rank.rank) +
                                              ", which " + record.status.text()};
    }
  }
  return {0, is_released ? "this machine has left job " + job_id_ + ", which goes on"
                         : "the ranks here of job " + job_id_ + " have ended in order"};
}

void JobRunner::end_if_idle(int node) {
  const std::vector<RankPlan>& ranks = agents_.nodes[static_cast<std::size_t>(node)].ranks;
  const bool is_idle = std::all_of(ranks.begin(), ranks.end(), [this](const RankPlan& rank) {
    const RankRecord::State state = state_.ranks()[static_cast<std::size_t>(rank.rank)].state;
    return state == RankRecord::State::kEnded || state == RankRecord::State::kLost;
  });
  if (has_joined(node) && is_idle && state_.phase() == JobPhase::kRunning) {
    act(EndNode{node});  // its agent would wait for ranks that are started again
  }
}

std::vector<int> JobRunner::staying_ranks() const {
  std::vector<int> staying;
  for (const NodePlan& node : agents_.nodes) {
    for (const RankPlan& rank : node.ranks) {
      if (!leaving_nodes_.contains(node.index)) {
        staying.push_back(rank.rank);
      }
    }
  }
  return staying;
}

void JobRunner::on_leaving(int node, const std::string& why) {
  if (state_.is_over(node) || !leaving_nodes_.insert(node).second) {
    return;
  }
  if (!has_joined(node) && !state_.can_do_with(staying_ranks())) {
    return on_ending(node, why);
  }
  say_all(reporter_.on(Note{LogLevel::kWarning, node,
                            "its agent leaves (" + why +
                                "): its ranks leave at their next commit, if the others are "
                                "enough"}));
  leave_alone(node, "leaves");
  update_leaving();
  if (state_.is_over(node)) {
    sessions_[static_cast<std::size_t>(node)]->close_input(bye_to(node));  // nothing was started there
  }
}

// A node that comes later on the same host has the last word.
HostUse JobRunner::host_use() const {
  HostUse use;
  for (const NodePlan& node : placement_.nodes) {
    if (has_joined(node.index)) {
      continue;  // it comes and goes by itself
    }
    bool is_used = false;
    bool is_lost = false;
    for (const RankPlan& rank : node.ranks) {
      const RankRecord::State state = state_.ranks()[static_cast<std::size_t>(rank.rank)].state;
      is_used = is_used || state == RankRecord::State::kRunning || state == RankRecord::State::kPending;
      is_lost = is_lost || state == RankRecord::State::kLost;
    }
    if (is_used) {
      use.used.insert(node.host.name);
    }
    if (is_lost) {
      use.lost.insert(node.host.name);
    } else {
      use.lost.erase(node.host.name);
    }
  }
  std::erase_if(use.lost, [&use](const std::string& host) { return use.used.contains(host); });
  return use;
}

void JobRunner::update_hosts() {
  if (hosts_ != nullptr) {
    hosts_->look_later();
  }
}

void JobRunner::leave_alone(int node, const std::string& what) {
  if (hosts_ != nullptr && !has_joined(node)) {
    hosts_->exclude(agents_.nodes[static_cast<std::size_t>(node)].host.name, what);
  }
}

}  // namespace hvd::launch
