#include "launcher/run/job_runner.h"

#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "launcher/run/exit_codes.h"
#include "launcher/transport/rsh_template.h"

namespace hvd::launch {
namespace {

// For connections that can break in silence; a local session cannot. Each wakes the launcher twice for every node.
constexpr auto kHeartbeat = std::chrono::seconds(10);
// Output under way from all nodes together, and the least that one node needs to keep moving.
constexpr std::uint64_t kOutputCreditTotal = 16U << 20U;
constexpr std::uint64_t kOutputCreditLeast = 128U << 10U;
constexpr std::uint64_t kOutputCreditMost = 2U << 20U;
// Beyond the grace time, for the sweep of what the ranks left, until a node counts as lost.
constexpr auto kStopSlack = std::chrono::seconds(15);
// What starts faster needs no words on how far it is; neither do changes between two of them.
constexpr auto kSlowStart = std::chrono::seconds(5);
// For agents to end after they have been let go.
constexpr auto kEndTime = std::chrono::seconds(2);
// For an engine to clean up after its agents, also on other hosts.
constexpr Duration kEngineEndTime = std::chrono::seconds(10);
// Between an engine's beginning to end its agents and what the agent of the rank for which it does tells of that rank.
constexpr auto kSettleTime = std::chrono::seconds(1);
// For a slow reader to take the last of the output.
constexpr auto kFlushTime = std::chrono::hours(24);
constexpr auto kFlushAfterFailure = std::chrono::seconds(5);

template <std::size_t N>
Result<std::array<std::uint8_t, N>> random_bytes() {
  std::array<std::uint8_t, N> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  return bytes;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace

JobRunner::JobRunner(EventLoop& loop, const JobSpec& spec, const Placement& placement, Transports transports,
                     JobReporter& reporter, Log& log)
    : loop_(loop),
      spec_(spec),
      placement_(placement),
      agents_(agents_of(spec, placement)),
      transports_(transports),
      reporter_(reporter),
      log_(log),
      state_(agents_, spec.servers),
      logs_(loop, placement.size, static_cast<int>(agents_.nodes.size()),
            LogMuxOptions{spec.tags, spec.tags || spec.json_events, spec.timestamps, spec.color, spec.live, spec.gather,
                          spec.labels, spec.hidden},
            log_sink()),
      board_(placement.size),
      tree_(
          loop, spec, agents_,
          [this](int node, AgentMessage type, std::string_view body) {
            sessions_[static_cast<std::size_t>(node)]->send(type, body);
          },
          log),
      began_(loop.now()) {}

JobRunner::~JobRunner() {
  while (!sessions_.empty()) {
    sessions_.pop_back();  // one that is relayed ends its stream through one before it
  }
}

LogMux::Sink JobRunner::log_sink() {
  LogMux::Sink sink;
  sink.grant = [this](int node, std::uint64_t bytes) {
    ByteWriter body;
    body.u64(bytes);
    sessions_[static_cast<std::size_t>(node)]->send(AgentMessage::kCredit, body.str());
  };
  sink.on_failed = [this](const Error& why) { apply(OutputFailed{why}); };
  sink.on_files_failed = [this](const Error& why) {
    say_all(reporter_.on_note(
        {LogLevel::kError, -1, why.message() + "; the job goes on, and what its ranks print still comes here"}));
    apply(FilesFailed{why});
  };
  return sink;
}

Result<void> JobRunner::keep_output() {
  if (!spec_.kept_dir.empty()) {
    HVD_TRY(logs_.keep_in(RankFilesOptions{spec_.kept_dir, 0, 1, spec_.kept_files}, false));
  }
  if (!spec_.output_dir.empty()) {
    const OutputRotation& rotation = spec_.output_rotation;
    const auto kept = logs_.keep_in(RankFilesOptions{spec_.output_dir, rotation.max_bytes, rotation.old_files, {}});
    return kept.ok() ? kept : kept.error().with_context("--output-filename");
  }
  return {};
}

Result<int> JobRunner::run() {
  if (const auto kept = keep_output(); !kept.ok()) {
    say_all(reporter_.on_refused(kept.error(), exit_code::kOutputFailed));
    static_cast<void>(logs_.flush_all(Deadline::after(kFlushAfterFailure)));
    return exit_code::kOutputFailed;
  }
  HVD_TRY_ASSIGN(secret_, random_bytes<kSecretBytes>());
  HVD_TRY_ASSIGN(const auto token, (random_bytes<16>()));
  HVD_TRY_ASSIGN(const auto id, (random_bytes<4>()));
  token_ = hex(token);
  job_id_ = hex(id);
  start_timer_ = loop_.after(spec_.start_timeout, [this] { on_start_timeout(); });
  slow_timer_ = loop_.after(kSlowStart, [this] { tell_slow_start(); });
  say_all(reporter_.on_begin(job_id_));
  show_status();
  open_sessions();
  HVD_TRY(loop_.run());
  // First what the ranks printed, then what to say of the job: whether all of it could be written belongs to that.
  if (const auto written = logs_.flush_all(flush_deadline()); !written.ok()) {
    state_.on(OutputFailed{written.error()});
  }
  say_all(reporter_.on_end(state_, loop_.now() - began_));
  static_cast<void>(logs_.flush_all(flush_deadline()));
  return state_.exit_code();
}

Deadline JobRunner::flush_deadline() const {
  return Deadline::after(state_.exit_code() != 0 ? Duration(kFlushAfterFailure) : Duration(kFlushTime));
}

void JobRunner::open_sessions() {
  SessionSink& sink = *this;
  for (const NodePlan& plan : agents_.nodes) {
    sessions_.push_back(std::make_unique<NodeSession>(loop_, plan, placement_.size, sink));
  }
  for (const auto& session : sessions_) {
    const TransportKind kind = choose_transport(spec_, session->plan().host.name);
    const int node = session->plan().index;
    const std::string* relay = tree_.relay_of(node);
    log_.write(LogLevel::kDebug, session->plan().host.name + ": opening (" + transport_name(kind) +
                                     (relay == nullptr ? "" : " from " + *relay) + ")");
    session->open(tree_.way_to(node, transport_of(kind)));
  }
  if (transports_.engine != nullptr) {
    start_engine();
  }
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
    log_.write(LogLevel::kDebug, name + ": " + line);  // it tells of what we have ended, and how to avoid that
  } else {
    say_all(reporter_.on_engine_line(name, line));
  }
}

void JobRunner::on_engine_over(const Error& why) {
  log_.write(LogLevel::kDebug, why.message());
  apply(EngineEnded{why});
  end_if_closed();
}

// One of its ranks has failed in a way that it saw as well, or it was itself asked to end. The first failure is then
// about to be told by the agent of that rank; else what the engine says is all that there is to tell.
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
      break;
  }
  return *transports_.dial_back;
}

void JobRunner::apply(const JobEvent& event) {
  for (const JobAction& action : state_.on(event)) {
    std::visit([this](const auto& a) { act(a); }, action);
  }
}

void JobRunner::on_ready(int node, const ReadyMessage& ready) {
  NodeSession& session = *sessions_[static_cast<std::size_t>(node)];
  log_.write(LogLevel::kDebug, session.plan().host.name + ": agent " + ready.version + " is ready (pid " +
                                   std::to_string(ready.pid) + ", " + std::to_string(ready.cores.size()) + " cores)");
  if (transports_.engine != nullptr) {
    // At once: an engine with ranks of its own number would leave others waited for in vain.
    const int rank = session.plan().ranks.front().rank;
    if (const auto seated = check_seat(placement_, rank, ready, ready.host_name); !seated.ok()) {
      return apply(Misplaced{seated.error()});
    }
  }
  const bool is_local = session.opened().is_local;
  // An agent that an engine has started cannot call a second time.
  const Duration reconnect = is_local || transports_.engine != nullptr ? Duration::zero() : spec_.reconnect_timeout;
  WelcomeMessage welcome;
  welcome.job_id = job_id_;
  welcome.size = placement_.size;
  welcome.secret = secret_;
  welcome.token = token_;
  welcome.heartbeat_ms = is_local ? 0 : static_cast<std::uint32_t>(std::chrono::milliseconds(kHeartbeat).count());
  welcome.reconnect_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(reconnect).count());
  welcome.output_credit = std::clamp(kOutputCreditTotal / agents_.nodes.size(), kOutputCreditLeast, kOutputCreditMost);
  if (!is_local) {
    session.watch_connection(kHeartbeat, reconnect, token_);
  }
  session.send(AgentMessage::kWelcome, welcome.encode());
  tree_.change(node, Relay::State::kUp);
  say_all(reporter_.on_node_ready(node, ready));
  show_status();
  apply(NodeReady{node});
}

void JobRunner::act(const StartRanks&) {
  loop_.cancel(start_timer_);
  loop_.cancel(slow_timer_);
  show_status();
  say_all(reporter_.on_all_ready(loop_.now() - began_));
  if (spec_.timeout > Duration::zero()) {
    timeout_timer_ = loop_.after(spec_.timeout, [this] { apply(TimedOut{}); });
  }
  std::vector<NodeView> views;
  for (const auto& session : sessions_) {
    views.push_back(NodeView{session->opened(), *session->ready()});
  }
  const JobView job{placement_, agents_, views};
  // Told later: we are in the middle of what the last event asks for.
  if (const auto seated = transports_.engine != nullptr ? check_seats(job) : Result<void>(); !seated.ok()) {
    loop_.post([this, why = seated.error()] { apply(Misplaced{why}); });
    return;
  }
  if (const auto failed = find_missing_gpu(job)) {
    loop_.post([this, failed = *failed] { on_start_failed(failed); });
    return;
  }
  const auto messages =
      make_start_messages(spec_, job, job_id_, token_, programs_ ? programs_(job) : std::vector<RankProgram>());
  for (const std::string& text : start_warnings(spec_, job)) {
    say_all(reporter_.on_note({LogLevel::kWarning, -1, text}));
  }
  has_started_ = true;
  for (std::size_t node = 0; node < sessions_.size(); ++node) {
    for (const StartMessage::Rank& rank : messages[node].ranks) {
      if (!rank.cpus.empty()) {
        log_.write(LogLevel::kDebug, agents_.nodes[node].host.name + ": rank " + std::to_string(rank.rank) +
                                         " is bound to processors " + cpu_list_text(rank.cpus));
      }
    }
    sessions_[node]->send(AgentMessage::kStart, messages[node].encode());
  }
}

void JobRunner::act(const StopNodes& action) {
  StopMessage stop;
  stop.signal = action.signo;
  stop.grace_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(spec_.grace).count());
  broadcast(AgentMessage::kStop, stop.encode());
  loop_.cancel(stop_timer_);
  const Duration grace = action.signo == SIGKILL ? Duration::zero() : spec_.grace;
  stop_timer_ = loop_.after(grace + kStopSlack, [this] { apply(StopTimedOut{}); });
}

void JobRunner::act(const TellRanks& action) {
  broadcast(AgentMessage::kNotice, action.cause);
}

void JobRunner::act(const ReportCause&) {
  const Cause& cause = *state_.cause();
  logs_.release_held();
  show_status();
  Failure failure;
  failure.cause = cause;
  if (cause.rank >= 0) {
    const RankRecord& record = state_.ranks()[static_cast<std::size_t>(cause.rank)];
    failure.last_errors = logs_.last_errors(cause.rank);
    failure.status = record.status;
    failure.detail = record.detail;
    failure.kept_in = logs_.kept_in(cause.rank);
  }
  say_all(reporter_.on_failure(failure));
}

void JobRunner::act(const Finish&) {
  is_finishing_ = true;
  loop_.cancel(timeout_timer_);
  loop_.cancel(stop_timer_);
  loop_.cancel(start_timer_);
  loop_.cancel(slow_timer_);
  loop_.cancel(settle_timer_);
  if (state_.cause() && state_.phase() == JobPhase::kDone) {
    log_.write(LogLevel::kDebug, "leaving the sessions");
  }
  // Those that are relayed first: the others leave with what they carry.
  std::for_each(sessions_.rbegin(), sessions_.rend(), [](const auto& session) { session->close_input(); });
  if (transports_.engine != nullptr && !has_started_) {
    transports_.engine->end();  // it may still be waiting for a host that does not answer
  }
  end_timer_ =
      loop_.after(transports_.engine != nullptr ? kEngineEndTime : Duration(kEndTime), [this] { loop_.stop(); });
  end_if_closed();
}

void JobRunner::end_if_closed() {
  const bool any_open =
      std::any_of(sessions_.begin(), sessions_.end(), [](const auto& session) { return session->is_open(); });
  const bool is_engine_running = transports_.engine != nullptr && transports_.engine->is_running();
  if (is_finishing_ && !any_open && !is_engine_running) {
    loop_.cancel(end_timer_);
    loop_.stop();
  }
}

void JobRunner::say_all(const Lines& lines) {
  for (const std::string& line : lines) {
    logs_.say(line);
  }
}

void JobRunner::show_status() {
  logs_.show_status(state_.phase() == JobPhase::kOpening ? reporter_.status() : "");
}

void JobRunner::tell_slow_start() {
  say_all(reporter_.on_slow_start());
  slow_timer_ = loop_.after(kSlowStart, [this] { tell_slow_start(); });
}

void JobRunner::broadcast(AgentMessage type, std::string_view body) {
  const auto frame = std::make_shared<const std::string>(agent_frame(type, body));
  for (const auto& session : sessions_) {
    session->send_frame(type, frame);
  }
}

void JobRunner::on_signal(int signo) {
  if (signo == SIGUSR1 || signo == SIGUSR2) {
    broadcast(AgentMessage::kForward, number_body(signo));
    return;
  }
  apply(Interrupted{signo});
}

void JobRunner::on_progress(int node, const std::string& what) {
  log_.write(LogLevel::kDebug, agents_.nodes[static_cast<std::size_t>(node)].host.name + ": " + what);
  say_all(reporter_.on_node_progress(node, what));
  show_status();
}

void JobRunner::on_notice(int node, const std::string& what) {
  say_all(reporter_.on_note({LogLevel::kWarning, node, what}));
}

void JobRunner::on_away(int node, const Error& why, Duration patience) {
  say_all(reporter_.on_node_away(node, why, patience));
  tree_.change(node, Relay::State::kAway);
}

void JobRunner::on_back(int node, Duration away) {
  say_all(reporter_.on_node_back(node, away));
  tree_.change(node, Relay::State::kUp);
}

void JobRunner::on_started(int rank, int pid) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(rank) + " runs as pid " + std::to_string(pid) + " on " +
                                   placement_.node_of(rank).host.name);
  say_all(reporter_.on_rank_started(rank, pid));
  apply(RankStarted{rank, pid});
}

void JobRunner::on_start_failed(const StartFailedMessage& failed) {
  apply(RankStartFailed{failed.rank, failed.why});
}

void JobRunner::on_output(int node, const OutputMessage& output) {
  logs_.feed(node, output.rank, output.stream == StreamId::kStderr, output.bytes);
}

void JobRunner::on_output_end(int rank, StreamId stream) {
  logs_.finish(rank, stream == StreamId::kStderr);
}

void JobRunner::on_exited(const ExitedMessage& exited) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(exited.rank) + " " + exited.status.text());
  say_all(reporter_.on_rank_ended(exited.rank, exited.status, exited.detail));
  apply(RankExited{exited.rank, exited.status, exited.detail});
}

void JobRunner::on_exchange(const ExchangeMessage& exchange) {
  auto posted = board_.post(exchange.rank, exchange.key, exchange.value);
  if (!posted.ok()) {
    log_.write(LogLevel::kWarning, "rank " + std::to_string(exchange.rank) + ": " + posted.error().message());
  } else if (posted.value()) {
    broadcast(AgentMessage::kExchanged, ExchangedMessage{exchange.key, std::move(*posted.value())}.encode());
  }
}

void JobRunner::on_problem(int node, const std::string& text) {
  say_all(reporter_.on_note({LogLevel::kError, node, text}));
}

Result<void> JobRunner::on_relay(int node, const Frame& frame) {
  return tree_.on_frame(node, frame);
}

void JobRunner::on_done(int node) {
  apply(NodeDone{node});
}

void JobRunner::on_lost(int node, const Error& why) {
  if (!state_.is_over(node)) {
    say_all(reporter_.on_node_lost(node, why));
    show_status();
  }
  tree_.change(node, Relay::State::kGone);
  apply(NodeLost{node, why});
  end_if_closed();
}

}  // namespace hvd::launch
