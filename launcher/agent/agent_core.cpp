#include "launcher/agent/agent_core.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/own_process.h"
#include "launcher/survey/node_gpus.h"
#include "launcher/survey/own_cgroup.h"
#include "launcher/survey/own_cores.h"
#include "launcher/survey/own_networks.h"
#include "launcher/survey/own_system.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// For nvidia-smi, which takes seconds where the driver has to be loaded first.
constexpr auto kGpuTime = std::chrono::seconds(20);

// The kernel gives a bound port to no other connection and to no other server that lets it choose. It is bound and
// never listens, and SO_REUSEADDR is set afterwards: a rank's server that sets SO_REUSEADDR, as torch's and gRPC's do,
// can still listen there, also long after the start and once more after a restart.
Result<Fd> reserve_port() {
  HVD_TRY_ASSIGN(const SocketAddress any, SocketAddress::make("0.0.0.0", 0));
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.is_open() || ::bind(fd.get(), any.raw(), any.raw_size()) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) {
    return Error::from_errno("cannot reserve a TCP port");
  }
  return fd;
}

}  // namespace

Result<std::unique_ptr<AgentCore>> AgentCore::create(EventLoop& loop, AgentOptions options, AgentConnection connection,
                                                     Log& log) {
  std::unique_ptr<AgentCore> core(new AgentCore(loop, std::move(options), log));
  HVD_TRY(core->open_session(std::move(connection)));
  return core;
}

AgentCore::AgentCore(EventLoop& loop, AgentOptions options, Log& log)
    : loop_(loop),
      options_(std::move(options)),
      log_(log),
      guardian_(::getppid()),
      state_({options_.lost_grace, options_.signal_patience}),
      tree_(loop, options_.environment, [this](AgentMessage type, std::string_view body) { send(type, body); }),
      answers_(loop, options_.environment,
               {[this] { return ranks_.running(); },
                [this](AgentMessage type, std::string_view body) { send(type, body); }}),
      ranks_(loop, {own_host_name(), options_.scratch_dir, options_.environment}, ranks_sink()) {}

AgentCore::~AgentCore() = default;

Result<void> AgentCore::open_session(AgentConnection connection) {
  RankHub::Sink sink;
  sink.on_joined = [this](int rank, std::uint32_t generation, bool is_waiting) {
    send(AgentMessage::kJoined, JoinedMessage{rank, generation, is_waiting}.encode());
  };
  sink.on_exchange = [this](int rank, std::uint32_t generation, const std::string& key, const std::string& value) {
    send(AgentMessage::kExchange, ExchangeMessage{rank, key, value, generation}.encode());
  };
  sink.on_failure = [this](int rank, std::uint32_t generation, const FailureNews& news) {
    send(AgentMessage::kFailing, FailingMessage{rank, news, generation}.encode());
  };
  const std::string socket_path = options_.scratch_dir + "/agent";
  HVD_TRY_ASSIGN(hub_, RankHub::listen(loop_, socket_path, std::move(sink), log_));
  HVD_TRY_ASSIGN(reserved_port_, reserve_port());
  HVD_TRY_ASSIGN(const SocketAddress reserved, SocketAddress::local_of(reserved_port_.get()));

  RelayHub::Sink relays;
  relays.send = [this](AgentMessage type, std::string_view body) { send(type, body); };
  relays.on_idle = [this] {
    if (state_.is_leaving()) {
      loop_.stop();
    }
  };
  relays_ = std::make_unique<RelayHub>(loop_, options_.environment, std::move(relays));

  AgentSession::Sink session;
  session.on_frame = [this](const Frame& frame) { return on_frame(frame); };
  session.on_relay = [this](const Frame& frame) { return relays_->on_frame(frame); };
  session.on_disconnected = [this] { relays_->end_all(); };
  session.on_bye = [this](const ByeMessage& bye) { bye_ = bye; };
  session.on_over = [this](const std::string& why) { abandon(why); };
  session.is_worth_waiting = [this] { return state_.is_worth_waiting(); };
  const std::string resume_path = options_.scratch_dir + "/resume";
  HVD_TRY_ASSIGN(launcher_, AgentSession::create(loop_, std::move(connection), resume_path, std::move(session), log_));
  ReadyMessage ready;
  ready.version = HVD_VERSION;
  ready.host_name = options_.node_name.empty() ? own_host_name() : options_.node_name;
  ready.pid = ::getpid();
  ready.cores = own_cores(allowed_cpus());
  ready.reserved_port = reserved.port();
  ready.socket_path = socket_path;
  ready.resume_path = resume_path;
  ready.networks = own_networks();
  NodeGpus gpus = node_gpus(options_.environment, Deadline::after(kGpuTime));
  ready.gpu_variable = std::move(gpus.variable);
  answers_.set_has_gpus(!gpus.names.empty());
  ready.gpus = std::move(gpus.names);
  ready.near = std::move(gpus.near);
  ready.seat = options_.seat;
  ready.machine = own_machine();
  ready.processor = own_processor();
  ready.processor_limit = own_cgroup_limits().processors;
  ready.addresses = own_addresses();
  if (options_.joins) {
    ready.slots = options_.slots > 0 ? options_.slots : std::max(1, static_cast<int>(ready.gpus.size()));
  }
  send(AgentMessage::kReady, ready.encode());
  return {};
}

Result<void> AgentCore::on_frame(const Frame& frame) {
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::kWelcome:
      return on_welcome(frame);
    case AgentMessage::kStart:
      return on_start(frame);
    case AgentMessage::kGeneration:
      return on_generation(frame);
    case AgentMessage::kStop: {
      HVD_TRY_ASSIGN(const StopMessage stop, StopMessage::decode(frame.body));
      apply(agent_event::StopAsked{stop.signal, std::chrono::milliseconds(stop.grace_ms), stop.spared});
      if (stop.signal == SIGKILL) {
        tree_.skip_results();
      }
      return {};
    }
    case AgentMessage::kEndRank: {
      HVD_TRY_ASSIGN(const auto rank_and_signal, decode_two_numbers(frame.body));
      ranks_.end_rank(rank_and_signal.first, rank_and_signal.second);
      return {};
    }
    case AgentMessage::kForward: {
      HVD_TRY_ASSIGN(const int signo, decode_number(frame.body));
      ranks_.signal(signo);
      return {};
    }
    case AgentMessage::kSuspend:
      apply(agent_event::SuspendAsked{});
      return {};
    case AgentMessage::kContinue:
      apply(agent_event::ContinueAsked{});
      return {};
    case AgentMessage::kCredit: {
      ByteReader in(frame.body);
      ranks_.on_credit(in.u64());
      return {};
    }
    case AgentMessage::kInput:
      return ranks_.input().feed(frame.body);
    case AgentMessage::kInputEnd:
      ranks_.input().end();
      return {};
    case AgentMessage::kExchanged: {
      HVD_TRY_ASSIGN(const ExchangedMessage done, ExchangedMessage::decode(frame.body));
      hub_->send_exchanged(done.generation, done.key, done.values);
      return {};
    }
    case AgentMessage::kNotice:
      hub_->send_notice(frame.body);
      return {};
    case AgentMessage::kOfferTree:
    case AgentMessage::kTreeList:
    case AgentMessage::kFileBytes:
    case AgentMessage::kFetchFiles:
    case AgentMessage::kResultCredit:
      return tree_.on_message(static_cast<AgentMessage>(frame.type), frame.body);
    default:
      if (answers_.takes(static_cast<AgentMessage>(frame.type))) {
        return answers_.on_question(static_cast<AgentMessage>(frame.type), frame.body);
      }
      return Error(Code::kProtocol,
                   "the launcher sent a message of type " + std::to_string(frame.type) + ", which is not for an agent");
  }
}

Result<void> AgentCore::on_welcome(const Frame& frame) {
  HVD_TRY_ASSIGN(const WelcomeMessage welcome, WelcomeMessage::decode(frame.body));
  hub_->admit(RankHub::Admission{welcome.token, welcome.secret, welcome.size});
  ranks_.on_credit(welcome.output_credit);
  tree_.set_job({welcome.job_id, welcome.secret});
  answers_.admit(welcome.secret);
  launcher_->on_welcome(welcome);
  return {};
}

Result<void> AgentCore::on_start(const Frame& frame) {
  HVD_TRY_ASSIGN(start_, StartMessage::decode(frame.body));
  tree_.want(start_.results);
  tree_.stop_serving();
  hub_->set_elastic(start_.may_restart);
  if (start_.is_joining) {
    hub_->set_joining(start_.generation);
  }
  if (options_.joins) {
    const std::size_t count = start_.ranks.size();
    const std::string first = std::to_string(start_.ranks.front().rank);
    log_.write(LogLevel::kInfo, count == 1 ? "rank " + first + " of the job starts here"
                                           : "ranks " + first + "-" + std::to_string(start_.ranks.back().rank) +
                                                 " of the job start here");
  }
  apply(agent_event::StartAsked{start_.may_restart});
  return {};
}

Result<void> AgentCore::on_generation(const Frame& frame) {
  HVD_TRY_ASSIGN(GenerationMessage message, GenerationMessage::decode(frame.body));
  if (!state_.may_start_again()) {
    return {};
  }
  hub_->set_growing(message.is_growing);
  if (message.kind == GenerationMessage::Kind::kChanged) {
    hub_->tell_changed();
  }
  if (!message.cause.empty()) {
    hub_->turn_away(message.cause);
  }
  if (message.kind == GenerationMessage::Kind::kFormed) {
    std::map<int, GenerationPlace> places;
    for (const GenerationMessage::Member& member : message.members) {
      places[member.rank] = member.place;
    }
    hub_->form_generation(message.number, places);
  }
  hub_->release(message.released);
  if (message.start) {
    ranks_.restart(std::move(*message.start));
  }
  return {};
}

NodeRanks::Sink AgentCore::ranks_sink() {
  NodeRanks::Sink sink;
  sink.send = [this](AgentMessage type, std::string_view body) { send(type, body); };
  sink.send_frame = [this](AgentMessage type, std::string_view frame) { launcher_->send_frame(type, frame); };
  sink.on_began = [this](int rank) { apply(agent_event::RankBegan{rank}); };
  sink.on_finished = [this] { tell_ends(); };
  sink.is_of_others = [this](pid_t pid) { return relays_->owns(pid) || answers_.owns(pid); };
  sink.are_others_idle = [this] { return relays_->is_idle(); };
  return sink;
}

void AgentCore::on_child_signal() {
  ranks_.reap([this](pid_t pid, const ExitStatus& status) {
    if (const auto rank = ranks_.rank_of(pid)) {
      hub_->catch_up();
      answers_.tell_last(*rank, pid);
      ranks_.on_exited(pid, status, state_.is_stopping());
    } else if (!answers_.on_exited(pid, status)) {
      relays_->on_exited(pid, status);  // or a process that a rank had left behind
    }
  });
  tell_ends();
  if (state_.is_sweeping() && ranks_.is_nothing_left()) {
    apply(agent_event::LeftFound{});
  }
}

void AgentCore::tell_ends() {
  std::vector<AgentEvent> ends;
  ranks_.each_ended([&](const RankProcess& rank) {
    if (rank.is_finished() && state_.awaits(rank.rank())) {
      ends.emplace_back(agent_event::RankFinished{rank.rank(), rank.has_failed()});
    } else if (!rank.is_finished() && state_.runs(rank.rank())) {
      ends.emplace_back(agent_event::RankExited{rank.rank()});
    }
  });
  for (const auto& event : ends) {
    apply(event);
  }
}

void AgentCore::apply(const AgentEvent& event) {
  for (const AgentAction& action : state_.on(event)) {
    std::visit(
        [this](const auto& a) {
          if constexpr (requires { ranks_.act(a); }) {
            ranks_.act(a);
          } else {
            act(a);
          }
        },
        action);
  }
}

void AgentCore::act(const agent_action::BeginRanks&) {
  ranks_.start(std::exchange(start_, {}));
}

void AgentCore::act(const agent_action::ExpectSilence& action) {
  launcher_->expect_silence(action.is_expected);
}

void AgentCore::act(const agent_action::Say& action) {
  if (action.type == AgentMessage::kDone && !state_.is_abandoned() &&
      tree_.send_results([this] { send(AgentMessage::kDone); })) {
    return;
  }
  send(action.type, action.body);
  if (action.type == AgentMessage::kLeaving && options_.joins) {
    log_.write(LogLevel::kInfo,
               "its ranks leave the job at their next commit, if the others are enough; once more ends them at once");
  }
}

void AgentCore::act(const agent_action::Await& action) {
  act(agent_action::Forget{action.alarm});
  alarms_[static_cast<std::size_t>(action.alarm)] =
      loop_.after(action.delay, [this, alarm = action.alarm] { apply(agent_event::AlarmDue{alarm}); });
}

void AgentCore::act(const agent_action::Forget& action) {
  loop_.cancel(std::exchange(alarms_[static_cast<std::size_t>(action.alarm)], 0));
}

void AgentCore::act(const agent_action::LookForLeft&) {
  answers_.stop_sampling();
  const bool is_nothing = ranks_.is_nothing_left();
  apply(agent_event::LeftFound{is_nothing, is_nothing ? std::vector<pid_t>() : ranks_.left_behind(), loop_.now(),
                               ranks_.grace_ends()});
}

void AgentCore::act(const agent_action::LetGo&) {
  answers_.let_go();
  tree_.let_go();
  ranks_.drain();
}

void AgentCore::act(const agent_action::TellRanks& action) {
  log_.write(LogLevel::kDebug, action.why + "; stopping this node's ranks");
  hub_->send_notice(action.why);
}

// The nodes behind this one were let go before it, through it: it stays until they have heard that.
void AgentCore::act(const agent_action::Leave&) {
  if (::getppid() == guardian_) {
    ::kill(guardian_, SIGCONT);  // stopped, it would stay, and our scratch directory with it
  }
  if (relays_->is_idle()) {
    loop_.stop();
  } else {
    relays_->let_go();
  }
}

void AgentCore::on_end_signal(int signo) {
  const bool is_guarded = ::getppid() == guardian_;
  if (is_guarded && (options_.joins || signo == SIGTERM)) {
    is_told_to_end_ = true;
    apply(agent_event::LeaveAsked{"it got " + signal_name(signo), loop_.now()});
    return;
  }
  on_end(is_guarded ? "it got " + signal_name(signo) : "its guardian was killed");
}

void AgentCore::on_user_signal(int signo) {
  const auto last = passed_on_.find(signo);
  if (last != passed_on_.end() && loop_.now() - last->second < kSameSignal) {
    return;  // it came to the guardian too, which has passed it on
  }
  passed_on_[signo] = loop_.now();
  ranks_.signal(signo);
}

void AgentCore::on_end(const std::string& why) {
  is_told_to_end_ = true;
  apply(agent_event::EndAsked{why});
}

void AgentCore::abandon(const std::string& why) {
  why_over_ = why;
  apply(agent_event::LauncherGone{why});
}

}  // namespace hvd::launch
