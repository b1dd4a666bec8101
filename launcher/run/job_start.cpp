#include "launcher/run/job_start.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "launcher/command/rsh_template.h"
#include "launcher/job/text_file.h"
#include "launcher/placement/gpu_pinning.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// A start that is faster than this prints nothing about its progress; the same interval separates two progress lines.
constexpr auto kSlowStart = std::chrono::seconds(5);
// A node that has taken no part of its agent for so long is not waited for any more; the start's time begins anew so
// often for those that do.
constexpr Duration kPushPause = std::chrono::seconds(10);
constexpr int kMostPushRounds = 10;
// Limits the output under way from all nodes together; kOutputCreditLeast is what one node needs to keep moving.
constexpr std::uint64_t kOutputCreditTotal = 16U << 20U;
constexpr std::uint64_t kOutputCreditLeast = 128U << 10U;
constexpr std::uint64_t kOutputCreditMost = 2U << 20U;

template <std::size_t N>
Result<std::array<std::uint8_t, N>> random_bytes() {
  std::array<std::uint8_t, N> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  return bytes;
}

// Where other nodes may reach this one: as we do, and in the networks that its agent has named.
std::vector<std::string> addresses_of(const NodeSession& session) {
  std::vector<std::string> addresses;
  if (!session.opened().node_address.empty()) {
    addresses.push_back(session.opened().node_address);
  }
  for (const NamedNetwork& network : session.ready()->networks) {
    const std::string address = network.network.substr(0, network.network.find('/'));
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  }
  return addresses;
}

}  // namespace

Result<void> JobStart::make_secrets() {
  HVD_TRY_ASSIGN(secret_, random_bytes<kSecretBytes>());
  HVD_TRY_ASSIGN(const auto token, (random_bytes<16>()));
  HVD_TRY_ASSIGN(const auto id, (random_bytes<4>()));
  token_ = hex(token);
  job_.id = hex(id);
  return {};
}

void JobStart::begin(SessionSink& sink, std::function<void()> on_engine_over) {
  start_timer_ = job_.loop.after(job_.spec.start_timeout, [this] { on_start_timeout(); });
  slow_timer_ = job_.loop.after(kSlowStart, [this] { tell_slow_start(); });
  job_.say(news::Begun{job_.id});
  job_.show_status();
  for (const NodePlan& plan : job_.agents.nodes) {
    job_.sessions.push_back(std::make_unique<NodeSession>(job_.loop, plan, job_.placement.size, sink));
  }
  for (const NodePlan& plan : job_.agents.nodes) {
    open_session(plan.index);
  }
  others_.engine.start(std::move(on_engine_over));
}

void JobStart::open_session(int node) {
  NodeSession& session = job_.session(node);
  const TransportKind kind = choose_transport(job_.spec, session.plan().host);
  const std::string* relay = others_.tree.relay_of(node);
  job_.log.write(LogLevel::kDebug, session.plan().host.name + ": opening (" + transport_name(kind) +
                                       (relay == nullptr ? "" : " from " + *relay) + ")");
  session.open(others_.tree.way_to(node, transport_of(kind)));
}

void JobStart::bring(Tree tree) {
  way_in_tree_ = way_within(tree, job_.spec.cwd).value_or("");
  TreeSenders::Sink sink;
  sink.send = [this](int node, AgentMessage type, std::shared_ptr<const std::string> frame) {
    job_.session(node).send_frame(type, std::move(frame));
  };
  sink.on_here = [this](int node) { on_complete(node); };
  sink.on_failed = [this](int node, const Error& why) { on_tree_failed(node, why); };
  sink.addresses_of = [this](int node) { return addresses_of(job_.session(node)); };
  sink.on_changed = [this](int node, const std::string& path, std::size_t others) {
    const std::string what = others == 0
                                 ? " was changed while it was copied"
                                 : " and " + counted(others, "other file") + " were changed while they were copied";
    job_.say(Note{LogLevel::kWarning, node, "--sync: " + path + what + ", so that hosts may have different ones"});
  };
  sink.on_waiting = [this](int node, const std::string& what) {
    constexpr std::size_t kMostSaid = 1000;  // the text is of a file that others may write
    job_.say(Note{LogLevel::kWarning, node, shown_text(std::string_view(what).substr(0, kMostSaid))});
  };
  sink.on_fallback = [this](int node, int source, const std::string& why) {
    job_.log.write(LogLevel::kDebug, job_.agent(node).host.name + ": does not get the files from " +
                                         job_.agent(source).host.name + ", but from here: " + why);
  };
  trees_ = std::make_unique<TreeSenders>(job_.loop, std::move(tree), std::move(sink));
}

Result<void> JobStart::on_tree_message(int node, AgentMessage type, const std::string& body) {
  if (trees_ == nullptr) {
    return Error(Code::kProtocol, "its agent speaks of a folder, and none is brought to it");
  }
  return trees_->on_message(node, type, body);
}

void JobStart::on_lost(int node) {
  if (trees_ != nullptr) {
    trees_->forget(node);
  }
}

void JobStart::on_tree_failed(int node, const Error& why) {
  NodeSession& session = job_.session(node);
  const Error named = why.with_context(session.plan().host.name);
  job_.say(news::NodeLost{node, named});
  job_.show_status();
  job_.apply(NodeLost{node, named});
  if (job_.has_started) {
    session.close_input();  // it was to join, and the job goes on without it
  }
}

void JobStart::tell_copied() {
  const TreeSenders::Totals& totals = trees_->totals();
  if (totals.nodes == 0) {
    return;
  }
  std::string text = "copied " + counted(totals.files, "file") + " (" + std::to_string(totals.bytes) + " bytes)";
  if (totals.removed > 0) {
    text += " and removed " + std::to_string(totals.removed);
  }
  job_.log.write(LogLevel::kInfo, "--sync: " + text + " on " + counted(totals.nodes, "node"));
}

void JobStart::take_place(int node, StartMessage& start) const {
  const std::string path = trees_ == nullptr ? "" : trees_->path_on(node);
  if (!path.empty()) {
    start.cwd = path + way_in_tree_;
    start.results = job_.spec.sync_back;
  }
}

// Files are on their way, however many these are, or agents, which many hosts take at once from one link. A host that
// takes a byte a second must not hold the job for ever.
bool JobStart::is_bringing() {
  const std::uint64_t active = trees_ == nullptr ? 0 : trees_->activity();
  if (active > std::exchange(active_before_, active)) {
    return true;
  }
  const auto is_pushing = [this](const Transport* way) {
    const auto at = way == nullptr ? std::nullopt : way->pushed_at();
    return at && job_.loop.now() - *at < std::min<Duration>(kPushPause, job_.spec.start_timeout / 2);
  };
  return (is_pushing(transports_.ssh) || is_pushing(transports_.rsh)) && ++push_rounds_ <= kMostPushRounds;
}

void JobStart::on_start_timeout() {
  if (is_bringing()) {
    start_timer_ = job_.loop.after(job_.spec.start_timeout, [this] { on_start_timeout(); });
    return;
  }
  if (others_.engine.is_there()) {
    others_.engine.on_start_timeout();
  } else {
    job_.apply(StartTimedOut{});
  }
}

Transport& JobStart::transport_of(TransportKind kind) const {
  switch (kind) {
    case TransportKind::kLocal:
      return *transports_.local;
    case TransportKind::kSsh:
      return *transports_.ssh;
    case TransportKind::kRsh:
      return *transports_.rsh;
    case TransportKind::kMpirun:
    case TransportKind::kSlurm:
    case TransportKind::kJsrun:
    case TransportKind::kSpark:
    case TransportKind::kKubernetes:
      break;
  }
  return *transports_.dial_back;
}

void JobStart::tell_slow_start() {
  for (const auto& session : job_.sessions) {
    const int node = session->plan().index;
    if (const std::string copying = trees_ == nullptr ? "" : trees_->progress_of(node); !copying.empty()) {
      job_.say(news::NodeProgress{node, copying});
    }
  }
  job_.say(news::SlowStart{});
  slow_timer_ = job_.loop.after(kSlowStart, [this] { tell_slow_start(); });
}

void JobStart::on_ready(int node, const ReadyMessage& ready) {
  NodeSession& session = job_.session(node);
  if (job_.state.is_over(node)) {
    session.close_input(others_.hosts.last_words(node));  // it was to join the job, which has no use for it any more
    return;
  }
  job_.log.write(LogLevel::kDebug, session.plan().host.name + ": agent " + ready.version + " is ready (pid " +
                                       std::to_string(ready.pid) + ", " + std::to_string(ready.cores.size()) +
                                       " cores)");
  if (others_.engine.is_there()) {
    // Check at once: an engine that starts another number of ranks would otherwise leave the missing ones awaited in
    // vain.
    const int rank = session.plan().ranks.front().rank;
    if (const auto seated = check_seat(job_.placement, rank, ready, ready.host_name); !seated.ok()) {
      job_.apply(Misplaced{seated.error()});
      return;
    }
  }
  welcome(session);
  others_.tree.set_processor(node, ready.processor);
  others_.tree.change(node, Relay::State::kUp);
  job_.say(news::NodeReady{node, ready});
  job_.show_status();
  // Here the folder itself is what its copies are elsewhere.
  if (trees_ != nullptr && !session.opened().is_local) {
    trees_->offer(node);
  } else {
    on_complete(node);
  }
}

void JobStart::on_complete(int node) {
  NodeSession& session = job_.session(node);
  job_.apply(NodeReady{node});
  if (job_.state.is_over(node)) {
    session.close_input(others_.hosts.last_words(node));  // the job is ending
  }
}

void JobStart::welcome(NodeSession& session) {
  const bool is_local = session.opened().is_local;
  // An agent that calls cannot connect a second time.
  const bool can_return =
      !is_local && job_.spec.launcher == LauncherKind::kOwn && !others_.hosts.has_joined(session.plan().index);
  const Duration reconnect = can_return ? job_.spec.reconnect_timeout : Duration::zero();
  WelcomeMessage welcome;
  welcome.job_id = job_.id;
  welcome.size = others_.hosts.may_grow() ? kMostRanks : job_.placement.size;
  welcome.secret = secret_;
  welcome.token = token_;
  // Only remote sessions send heartbeats, since only their connections can break in silence. Each heartbeat wakes the
  // launcher twice for every node.
  welcome.heartbeat_ms = is_local
                             ? 0
                             : static_cast<std::uint32_t>(
                                   std::chrono::duration_cast<std::chrono::milliseconds>(job_.spec.heartbeat).count());
  welcome.reconnect_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(reconnect).count());
  welcome.output_credit =
      std::clamp(kOutputCreditTotal / job_.agents.nodes.size(), kOutputCreditLeast, kOutputCreditMost);
  if (!is_local) {
    session.watch_connection(job_.spec.heartbeat, reconnect, token_);
  }
  session.send(AgentMessage::kWelcome, welcome.encode());
}

void JobStart::act(const StartRanks&) {
  job_.loop.cancel(start_timer_);
  job_.loop.cancel(slow_timer_);
  job_.show_status();
  job_.say(news::AllReady{job_.loop.now() - job_.began});
  if (trees_ != nullptr) {
    trees_->stop_sharing();
    tell_copied();
  }
  others_.deadlines.begin_timeout();
  std::vector<NodeView> views;
  for (const auto& session : job_.sessions) {
    views.push_back(NodeView{session->opened(), *session->ready()});
  }
  const JobView job{job_.placement, job_.agents, views};
  // Post it, because we are still carrying out the actions of the last event.
  if (const auto seated = others_.engine.is_there() ? check_seats(job) : Result<void>(); !seated.ok()) {
    job_.loop.post([this, why = seated.error()] { job_.apply(Misplaced{why}); });
    return;
  }
  auto failed = find_missing_gpu(job);
  if (!failed) {
    failed = find_missing_interface(job_.spec, job);
  }
  if (failed) {
    fail_later(*failed);
    return;
  }
  std::vector<StartMessage> messages =
      make_start_messages(job_.spec, job, job_.id, token_, programs_ ? programs_(job) : std::vector<RankProgram>());
  for (const std::string& text : start_warnings(job_.spec, job)) {
    job_.say(Note{LogLevel::kWarning, -1, text});
  }
  others_.logs.begin_files();
  send_starts(std::move(messages));
}

void JobStart::send_starts(std::vector<StartMessage> messages) {
  std::vector<std::string> bodies;
  for (std::size_t node = 0; node < job_.sessions.size(); ++node) {
    take_place(static_cast<int>(node), messages[node]);
    bodies.push_back(messages[node].encode());
    if (bodies.back().size() > kAgentFrames.max_length) {
      const StartFailedMessage too_long{
          messages[node].ranks.front().rank,
          Error(Code::kResource, "what its node's " + std::to_string(messages[node].ranks.size()) +
                                     " ranks are to be told has " + std::to_string(bodies.back().size()) +
                                     " bytes, more than one message may have (" +
                                     std::to_string(kAgentFrames.max_length) +
                                     "); name more hosts, or set fewer and shorter variables")};
      fail_later(too_long);
      return;
    }
  }
  job_.has_started = true;
  for (std::size_t node = 0; node < job_.sessions.size(); ++node) {
    for (const StartMessage::Rank& rank : messages[node].ranks) {
      if (!rank.cpus.empty()) {
        job_.log.write(LogLevel::kDebug, job_.agents.nodes[node].host.name + ": rank " + std::to_string(rank.rank) +
                                             " is bound to processors " + cpu_list_text(rank.cpus));
      }
    }
    job_.sessions[node]->send(AgentMessage::kStart, bodies[node]);
    bodies[node].clear();
  }
  if (job_.spec.restart_limit > 0) {
    job_.starts = std::move(messages);
  }
  begin_input();
  others_.hosts.begin();
}

void JobStart::fail_later(const StartFailedMessage& failed) {
  // We may still be carrying out the actions of the last event.
  job_.loop.post([this, failed] { job_.apply(RankStartFailed{failed.rank, failed.why}); });
}

void JobStart::begin_input() {
  if (job_.spec.input == InputMode::kNone || !input_from_.is_open()) {
    return;
  }
  std::vector<int> nodes;
  for (const NodePlan& node : job_.agents.nodes) {
    if (is_given_input(job_.spec, node)) {
      nodes.push_back(node.index);
    }
  }
  input_ = std::make_unique<JobInput>(job_.loop, std::move(input_from_), nodes,
                                      [this](int node, AgentMessage type, std::shared_ptr<const std::string> frame) {
                                        job_.session(node).send_frame(type, std::move(frame));
                                      });
}

void JobStart::act(const StartNode& action) {
  std::map<int, NodeView> views;
  for (const auto& session : job_.sessions) {
    const int node = session->plan().index;
    if (session->ready() && (node == action.node || !job_.state.is_over(node))) {
      views.emplace(node, NodeView{session->opened(), *session->ready()});
    }
  }
  const std::size_t index = static_cast<std::size_t>(action.node);
  const NodePlan& plan = job_.agents.nodes[index];
  const NodeView& view = views.at(action.node);
  const auto gpus = gpus_of_job(plan, view.ready.gpus);
  const std::string missing = missing_interface(view, plan.host.name, job_.spec.interfaces);
  if (!gpus.ok() || !missing.empty()) {
    fail_later(StartFailedMessage{plan.ranks.front().rank, gpus.ok() ? Error(Code::kResource, missing) : gpus.error()});
    return;
  }
  StartMessage start = late_start_message(job_.spec, job_.agents, views, action.node,
                                          LateStart{job_.id, token_, job_.generations.number()});
  take_place(action.node, start);
  if (late_programs_) {
    late_programs_(job_.agents, views, action.node, start);
  }
  job_.sessions[index]->send(AgentMessage::kStart, start.encode());
  job_.starts[index] = std::move(start);
}

void JobStart::stop() {
  input_.reset();
  job_.loop.cancel(start_timer_);
  job_.loop.cancel(slow_timer_);
}

}  // namespace hvd::launch
