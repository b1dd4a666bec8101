#include "launcher/run/job_runner.h"

#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/state/exit_codes.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// A node counts as lost this long after the grace period, which leaves its agent time to kill what the ranks left
// behind.
constexpr auto kStopSlack = std::chrono::seconds(15);
// A start that is faster than this prints nothing about its progress; the same interval separates two progress lines.
constexpr auto kSlowStart = std::chrono::seconds(5);
// Agents get this long to end after their sessions were closed.
constexpr auto kEndTime = std::chrono::seconds(2);
// An engine gets this long to clean up after its agents, also on other hosts.
constexpr Duration kEngineEndTime = std::chrono::seconds(10);
// When a job is stopped, readers get this long after the grace period to take what the ranks still wait to print.
constexpr auto kReaderTime = std::chrono::milliseconds(500);

template <std::size_t N>
Result<std::array<std::uint8_t, N>> random_bytes() {
  std::array<std::uint8_t, N> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  return bytes;
}

}  // namespace

JobRunner::JobRunner(EventLoop& loop, const JobSpec& spec, const Placement& placement, Transports transports,
                     JobReporter& reporter, Log& log, ConsoleFds console)
    : loop_(loop),
      spec_(spec),
      placement_(placement),
      transports_(transports),
      reporter_(reporter),
      log_(log),
      agents_(agents_of(spec, placement)),
      state_(agents_, spec.servers, spec.restart_limit, spec.grace, spec.least_ranks),
      logs_(loop, placement.size, static_cast<int>(agents_.nodes.size()),
            // Events always have tags beside them where both streams are one file: without a tag, a rank's line that
            // looks like an event could not be told from one.
            LogMuxOptions{spec.tags || (spec.json_events && is_same_file(console.out, console.err)),
                          spec.tags || spec.json_events, spec.timestamps, spec.color, spec.live,
                          [&spec](int rank) { return spec.answers && is_given_input(spec, rank); }, spec.gather,
                          spec.labels, spec.hidden, spec.shows_ranks, console},
            log_sink()),
      generations_(loop, placement, agents_,
                   {spec.least_ranks > 0 ? spec.least_ranks : placement.size, spec.elastic_wait}, generations_sink()),
      tree_(
          loop, spec, agents_,
          [this](int node, AgentMessage type, std::string_view body) {
            sessions_[static_cast<std::size_t>(node)]->send(type, body);
          },
          log),
      suspension_(loop, suspension_sink()),
      parts_{loop,
             spec,
             placement,
             agents_,
             state_,
             generations_,
             sessions_,
             starts_,
             logs_,
             reporter,
             log,
             job_id_,
             [this](const JobEvent& event) { apply(event); }},
      hosts_(parts_, *this, [this](int node) { open_session(node); }),
      engine_(parts_, transports.engine),
      away_(parts_),
      output_(parts_),
      began_(loop.now()) {}

JobRunner::~JobRunner() {
  while (!sessions_.empty()) {
    sessions_.pop_back();  // a relayed session ends its stream through a session before it
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
  sink.on_sign = [this](int rank, FailureSigns::Sign sign) {
    apply(RankComplained{rank, sign == FailureSigns::Sign::kLost, loop_.now()});
  };
  sink.on_files_failed = [this](const Error& why) {
    say_all(reporter_.on(
        Note{LogLevel::kError, -1, why.message() + "; the job goes on, and what its ranks print still comes here"}));
    apply(FilesFailed{why});
  };
  return sink;
}

Suspension::Sink JobRunner::suspension_sink() {
  Suspension::Sink sink;
  sink.suspend = [this] {
    int count = 0;
    for (const auto& session : sessions_) {
      if (session->is_open() && session->ready() && !is_finishing_) {
        session->send(AgentMessage::kSuspend);
        ++count;
      }
    }
    return count;
  };
  sink.let_continue = [this](Duration stopped) {
    broadcast(AgentMessage::kContinue, "");
    if (timeout_timer_ != 0) {
      timeout_due_ += stopped;
      arm_timeout();
    }
    logs_.show_rows();
  };
  sink.leave_terminal = [this] { logs_.hide_rows(); };
  return sink;
}

Generations::Sink JobRunner::generations_sink() {
  Generations::Sink sink;
  sink.send = [this](int node, AgentMessage type, const std::string& body) {
    if (NodeSession& session = *sessions_[static_cast<std::size_t>(node)]; session.has_started()) {
      session.send(type, body);  // a node that is joining hears of the generation when it is started
    }
  };
  sink.broadcast = [this](AgentMessage type, const std::string& body) { broadcast(type, body); };
  sink.on_formed = [this](const Generation& generation, Duration pause) {
    apply(MembersChanged{generation.members});
    say_all(reporter_.on(news::GenerationFormed{generation, pause}));
    apply(RanksReleased{generation.released, true});
    loop_.cancel(std::exchange(hosts_timer_, 0));
    hosts_.look_later();
  };
  return sink;
}

void JobRunner::arm_timeout() {
  loop_.cancel(timeout_timer_);
  timeout_timer_ = loop_.after(timeout_due_ - loop_.now(), [this] {
    timeout_timer_ = 0;
    apply(TimedOut{});
  });
}

Result<void> JobRunner::keep_output() {
  if (!spec_.kept_dir.empty()) {
    HVD_TRY(logs_.keep_in(RankFilesOptions{spec_.kept_dir, 0, 1, spec_.kept_files}, false));
  }
  if (!spec_.output_dir.empty()) {
    const OutputRotation& rotation = spec_.output_rotation;
    RankFilesOptions options{spec_.output_dir, rotation.max_bytes, rotation.old_files, {}};
    if (spec_.fresh.before > 0) {
      options.marker = "hvdrun: all ranks were started again here (restart " + std::to_string(spec_.fresh.before) +
                       " of " + std::to_string(spec_.fresh.limit) + ")";
    }
    options.named_for = spec_.fresh.first_size;
    const auto kept = logs_.keep_in(options);
    return kept.ok() ? kept : kept.error().with_context("--output-filename");
  }
  return {};
}

Result<int> JobRunner::run() {
  if (spec_.least_ranks > placement_.size) {
    const std::string least = std::to_string(spec_.least_ranks);
    const Error why(Code::kInvalid, "--min-np " + least + ": the job has room for " + std::to_string(placement_.size) +
                                        (placement_.size == 1 ? " rank" : " ranks") +
                                        " only; name more hosts or slots");
    say_all(reporter_.on(news::Refused{why, exit_code::kUsage}));
    output_.flush_refusal();
    return exit_code::kUsage;
  }
  if (const auto kept = keep_output(); !kept.ok()) {
    say_all(reporter_.on(news::Refused{kept.error(), exit_code::kOutputFailed}));
    output_.flush_refusal();
    return exit_code::kOutputFailed;
  }
  state_.limit_resets(spec_.reset_limit);
  if (spec_.excludes_failed_hosts) {
    state_.exclude_hosts();
  }
  HVD_TRY_ASSIGN(secret_, random_bytes<kSecretBytes>());
  HVD_TRY_ASSIGN(const auto token, (random_bytes<16>()));
  HVD_TRY_ASSIGN(const auto id, (random_bytes<4>()));
  token_ = hex(token);
  job_id_ = hex(id);
  if (const auto listening = hosts_.listen(); !listening.ok()) {
    say_all(reporter_.on(news::Refused{listening.error(), exit_code::kUsage}));
    output_.flush_refusal();
    return exit_code::kUsage;
  }
  start_timer_ = loop_.after(spec_.start_timeout, [this] { on_start_timeout(); });
  slow_timer_ = loop_.after(kSlowStart, [this] { tell_slow_start(); });
  say_all(reporter_.on(news::Begun{job_id_}));
  show_status();
  open_sessions();
  HVD_TRY(loop_.run());
  // Write the ranks' output first, then report on the job: whether all of it could be written is part of the report.
  if (const auto written = output_.flush(); !written.ok()) {
    state_.on(OutputFailed{written.error()});
  }
  output_.tell_unwritten();
  say_all(reporter_.on(news::Ended{state_, loop_.now() - began_}));
  static_cast<void>(output_.flush());
  const int cut_short_by = output_.cut_short_by();
  return state_.exit_code() == 0 && cut_short_by != 0 ? 128 + cut_short_by : state_.exit_code();
}

// Names the nodes on which ranks may still be running: a user who ends a job wants to know.
void JobRunner::name_lost_touch() {
  for (const auto& session : sessions_) {
    const int node = session->plan().index;
    if (!has_started_ || !session->is_unfinished()) {
      continue;
    }
    const Duration most = session->agent_patience();
    say_all(reporter_.on(
        Note{LogLevel::kWarning, node,
             "it has not said that its ranks have ended; its agent ends them when it finds hvdrun gone" +
                 (most > Duration::zero()
                      ? ", at the latest after " + duration_text(most) + " without a sign of life from here"
                      : std::string())}));
  }
}

void JobRunner::apply(const JobEvent& event) {
  for (const JobAction& action : state_.on(event)) {
    std::visit([this](const auto& a) { act(a); }, action);
  }
}

void JobRunner::apply_notice(const JobEvent& event) {
  const bool had_cause = state_.cause().has_value();
  apply(event);
  was_told_to_end_ = was_told_to_end_ || (!had_cause && state_.cause().has_value());
}

void JobRunner::act(const StopNodes& action) {
  StopMessage stop;
  stop.signal = action.signo;
  stop.spared.assign(action.spared.begin(), action.spared.end());
  stop.grace_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(spec_.grace).count());
  generations_.stop();
  input_.reset();
  broadcast(AgentMessage::kStop, stop.encode());
  loop_.cancel(stop_timer_);
  const Duration grace = action.signo == SIGKILL ? Duration::zero() : spec_.grace;
  if (state_.cause()) {  // otherwise servers are being ended, and the job has not failed
    output_.stop_waiting_in(action.signo == SIGKILL ? grace : grace + kReaderTime);
  }
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
  failure.was_told = state_.was_told_as_failing();
  if (cause.rank >= 0) {
    const RankRecord& record = state_.ranks()[static_cast<std::size_t>(cause.rank)];
    failure.last_errors = logs_.last_errors(cause.rank);
    failure.status = record.status;
    failure.detail = record.detail;
    failure.kept_in = logs_.kept_in(cause.rank);
  }
  say_all(reporter_.on(failure));
}

void JobRunner::act(const ReportFailing&) {
  logs_.release_held();
  show_status();
  say_all(reporter_.on(news::Failing{*state_.cause()}));
}

void JobRunner::act(const AwaitCause&) {
  loop_.cancel(cause_timer_);
  cause_timer_ = loop_.after(spec_.grace, [this] {
    cause_timer_ = 0;
    apply(CauseDue{});
  });
}

void JobRunner::act(const AwaitEnd& action) {
  TimerId& timer = end_timers_[action.rank];
  loop_.cancel(timer);
  timer = loop_.after(spec_.grace, [this, action] {
    end_timers_.erase(action.rank);
    apply(RankOverdue{action.rank, action.pid});
  });
}

void JobRunner::act(const EndRank& action) {
  const int node = agents_.node_of(action.rank).index;
  sessions_[static_cast<std::size_t>(node)]->send(AgentMessage::kEndRank, number_body(action.rank, action.signo));
}

void JobRunner::act(const Finish&) {
  is_finishing_ = true;
  generations_.stop();
  input_.reset();
  loop_.cancel(std::exchange(timeout_timer_, 0));
  loop_.cancel(stop_timer_);
  loop_.cancel(start_timer_);
  loop_.cancel(slow_timer_);
  engine_.stop();
  loop_.cancel(std::exchange(cause_timer_, 0));
  loop_.cancel(std::exchange(hosts_timer_, 0));
  hosts_.stop();
  for (const auto& [rank, timer] : end_timers_) {
    loop_.cancel(timer);
  }
  end_timers_.clear();
  away_.stop();
  if (state_.cause() && state_.phase() == JobPhase::kDone) {
    log_.write(LogLevel::kDebug, "leaving the sessions");
  }
  name_lost_touch();
  // Close the relayed sessions first, because the other ones carry their bytes.
  std::for_each(sessions_.rbegin(), sessions_.rend(),
                [this](const auto& session) { session->close_input(hosts_.last_words(session->plan().index)); });
  if (!has_started_) {
    engine_.end();
  }
  end_timer_ = loop_.after(engine_.is_there() ? kEngineEndTime : Duration(kEndTime), [this] { loop_.stop(); });
  end_if_closed();
}

void JobRunner::end_if_closed() {
  const bool any_open =
      std::any_of(sessions_.begin(), sessions_.end(), [](const auto& session) { return session->has_agent(); });
  if (is_finishing_ && !any_open && !engine_.is_running()) {
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
  say_all(reporter_.on(news::SlowStart{}));
  slow_timer_ = loop_.after(kSlowStart, [this] { tell_slow_start(); });
}

void JobRunner::broadcast(AgentMessage type, std::string_view body) {
  const auto frame = std::make_shared<const std::string>(agent_frame(type, body));
  for (const auto& session : sessions_) {
    if (!has_started_ || session->has_started()) {
      session->send_frame(type, frame);
    }
  }
}

void JobRunner::on_signal(int signo) {
  if (signo == SIGCONT || signo == SIGTTIN) {
    if (signo == SIGCONT && input_) {
      input_->look_again();
    }
    return;
  }
  if (signo == SIGTSTP) {
    suspension_.begin();
    return;
  }
  const bool is_end = signo == SIGUSR1 && !spec_.requeued_job.empty();
  if ((signo == SIGUSR1 && !is_end) || signo == SIGUSR2) {
    broadcast(AgentMessage::kForward, number_body(signo));
    return;
  }
  if (output_.on_signal(signo)) {
    state_.on(Interrupted{signo});  // it is over, and only remembers that
    return;
  }
  if (is_end || signo == SIGTERM) {
    apply_notice(Interrupted{signo});
  } else {
    apply(Interrupted{signo});
  }
}

// ---- what the sessions report ----

void JobRunner::on_progress(int node, const std::string& what) {
  log_.write(LogLevel::kDebug, agents_.nodes[static_cast<std::size_t>(node)].host.name + ": " + what);
  say_all(reporter_.on(news::NodeProgress{node, what}));
  show_status();
}

void JobRunner::on_notice(int node, const std::string& what) {
  say_all(reporter_.on(Note{LogLevel::kWarning, node, what}));
}

void JobRunner::on_away(int node, const Error& why, Duration patience) {
  say_all(reporter_.on(news::NodeAway{node, why, patience}));
  tree_.change(node, Relay::State::kAway);
  away_.on_away(node, why);
}

void JobRunner::on_back(int node, Duration away) {
  say_all(reporter_.on(news::NodeBack{node, away}));
  away_.on_back(node);
  tree_.change(node, Relay::State::kUp);
}

void JobRunner::on_started(int rank, int pid) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(rank) + " runs as pid " + std::to_string(pid) + " on " +
                                   placement_.node_of(rank).host.name);
  say_all(reporter_.on(news::RankStarted{rank, pid}));
  apply(RankStarted{rank, pid});
}

void JobRunner::on_joined(const JoinedMessage& joined) {
  apply(RankJoined{joined.rank});
  generations_.on_joined(joined);
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

void JobRunner::on_input_credit(int node, std::uint64_t bytes) {
  if (input_) {
    input_->on_credit(node, bytes);
  }
}

void JobRunner::on_input_over(int node) {
  if (input_) {
    input_->on_over(node);
  }
}

void JobRunner::on_failing(const FailingMessage& failing) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(failing.rank) + " tells of a failure: " + failing.news.what);
  FailureNews news = failing.news;
  news.by = generations_.started_as(failing.generation, news.by);
  apply(RankFailing{failing.rank, std::move(news), loop_.now()});
}

void JobRunner::on_exited(const ExitedMessage& exited) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(exited.rank) + " " + exited.status.text());
  say_all(reporter_.on(news::RankEnded{exited.rank, exited.status, exited.detail}));
  apply(RankExited{exited.rank, exited.status, exited.detail, loop_.now()});
  hosts_.look_later();
  const bool is_over = state_.ranks()[static_cast<std::size_t>(exited.rank)].state == RankRecord::State::kEnded;
  if (spec_.restart_limit > 0 && is_over && exited.status.is_success()) {
    generations_.on_done(exited.rank);
  }
  hosts_.end_if_idle(agents_.node_of(exited.rank).index);
}

void JobRunner::on_exchange(const ExchangeMessage& exchange) {
  if (const auto posted = generations_.post(exchange); !posted.ok()) {
    log_.write(LogLevel::kWarning, "rank " + std::to_string(exchange.rank) + ": " + posted.error().message());
  }
}

void JobRunner::on_problem(int node, const std::string& text) {
  say_all(reporter_.on(Note{LogLevel::kError, node, text}));
}

Result<void> JobRunner::on_relay(int node, const Frame& frame) {
  return tree_.on_frame(node, frame);
}

void JobRunner::on_suspended(int /*node*/) {
  suspension_.on_suspended();
}

void JobRunner::on_done(int node) {
  apply(NodeDone{node});
  hosts_.on_done(node);
}

void JobRunner::on_lost(int node, const Error& why) {
  if (!state_.is_over(node)) {
    say_all(reporter_.on(news::NodeLost{node, why}));
    show_status();
  }
  tree_.change(node, Relay::State::kGone);
  on_input_over(node);
  apply(NodeLost{node, why});
  hosts_.look_later();
  end_if_closed();
}

}  // namespace hvd::launch
