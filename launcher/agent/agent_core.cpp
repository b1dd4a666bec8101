#include "launcher/agent/agent_core.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "launcher/process/core_file.h"
#include "launcher/process/descendants.h"
#include "launcher/process/spawn.h"
#include "launcher/survey/node_gpus.h"
#include "launcher/survey/own_cores.h"
#include "launcher/survey/own_networks.h"
#include "launcher/survey/own_system.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// For nvidia-smi, which takes seconds where the driver has to be loaded first.
constexpr auto kGpuTime = std::chrono::seconds(20);
// Between TERM and KILL for what the ranks left behind (resource trackers end by themselves in milliseconds).
constexpr auto kSweepGrace = std::chrono::seconds(1);
constexpr auto kSweepRetry = std::chrono::milliseconds(50);
// A process in an uninterruptible call cannot be killed; after this it is named and left.
constexpr auto kSweepLimit = std::chrono::seconds(10);

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// Bound, not listening: nobody else gets the port, and it is free the moment this is closed.
Result<Fd> reserve_port() {
  HVD_TRY_ASSIGN(const SocketAddress any, SocketAddress::make("0.0.0.0", 0));
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || ::bind(fd.get(), any.raw(), any.raw_size()) != 0) {
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
      input_(loop, kInputWindow, input_sink()) {}

AgentCore::~AgentCore() = default;

Result<void> AgentCore::open_session(AgentConnection connection) {
  RankHub::Sink sink;
  sink.on_joined = [this](int rank) { send(AgentMessage::kJoined, number_body(rank)); };
  sink.on_exchange = [this](int rank, const std::string& key, const std::string& value) {
    send(AgentMessage::kExchange, ExchangeMessage{rank, key, value, epoch_}.encode());
  };
  sink.on_failure = [this](int rank, const FailureNews& news) {
    send(AgentMessage::kFailing, FailingMessage{rank, news}.encode());
  };
  const std::string socket_path = options_.scratch_dir + "/agent";
  HVD_TRY_ASSIGN(hub_, RankHub::listen(loop_, socket_path, std::move(sink), log_));
  HVD_TRY_ASSIGN(reserved_port_, reserve_port());
  HVD_TRY_ASSIGN(const SocketAddress reserved, SocketAddress::local_of(reserved_port_.get()));

  RelayHub::Sink relays;
  relays.send = [this](AgentMessage type, std::string_view body) { send(type, body); };
  relays.on_idle = [this] {
    if (is_leaving_) {
      loop_.stop();
    }
  };
  relays_ = std::make_unique<RelayHub>(loop_, options_.environment, std::move(relays));

  AgentSession::Sink session;
  session.on_frame = [this](const Frame& frame) { return on_frame(frame); };
  session.on_relay = [this](const Frame& frame) { return relays_->on_frame(frame); };
  session.on_disconnected = [this] { relays_->end_all(); };
  session.on_over = [this](const std::string& why) { abandon(why); };
  session.is_worth_waiting = [this] { return has_started_ && !is_abandoned_; };
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
  ready.gpus = std::move(gpus.names);
  ready.near = std::move(gpus.near);
  ready.seat = options_.seat;
  ready.machine = own_machine();
  send(AgentMessage::kReady, ready.encode());
  return {};
}

Result<void> AgentCore::on_frame(const Frame& frame) {
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::kWelcome:
      return on_welcome(frame);
    case AgentMessage::kStart:
      return on_start(frame);
    case AgentMessage::kRestart:
      return on_restart(frame);
    case AgentMessage::kStop: {
      HVD_TRY_ASSIGN(const StopMessage stop, StopMessage::decode(frame.body));
      climb(stop.signal, std::chrono::milliseconds(stop.grace_ms), stop.spared);
      return {};
    }
    case AgentMessage::kEndRank:
      return on_end_rank(frame);
    case AgentMessage::kForward: {
      HVD_TRY_ASSIGN(const int signo, decode_number(frame.body));
      for (const auto& rank : ranks_) {
        rank->signal_group(signo);
      }
      return {};
    }
    case AgentMessage::kSuspend:
      suspend();
      return {};
    case AgentMessage::kContinue:
      let_continue();
      return {};
    case AgentMessage::kCredit: {
      ByteReader in(frame.body);
      on_credit(in.u64());
      return {};
    }
    case AgentMessage::kInput:
      return input_.feed(frame.body);
    case AgentMessage::kInputEnd:
      input_.end();
      return {};
    case AgentMessage::kExchanged: {
      HVD_TRY_ASSIGN(const ExchangedMessage done, ExchangedMessage::decode(frame.body));
      hub_->send_exchanged(done.key, done.values);
      return {};
    }
    case AgentMessage::kNotice:
      hub_->send_notice(frame.body);
      return {};
    default:
      if (check_ && NodeCheck::is_question(static_cast<AgentMessage>(frame.type))) {
        return check_->on_question(static_cast<AgentMessage>(frame.type), frame.body);
      }
      return Error(Code::kProtocol,
                   "the launcher sent a message of type " + std::to_string(frame.type) + ", which is not for an agent");
  }
}

Result<void> AgentCore::on_welcome(const Frame& frame) {
  HVD_TRY_ASSIGN(const WelcomeMessage welcome, WelcomeMessage::decode(frame.body));
  hub_->admit(RankHub::Admission{welcome.token, welcome.secret, welcome.size});
  credit_ = welcome.output_credit;
  check_ = make_check(welcome.secret);
  launcher_->on_welcome(welcome);
  return {};
}

std::unique_ptr<NodeCheck> AgentCore::make_check(const JobSecret& secret) {
  NodeCheck::Node node;
  node.environment = options_.environment;
  node.secret = secret;
  node.environment_of = [this](const StartMessage& start) { return environment_of(start, start.ranks.front()); };
  node.send = [this](AgentMessage type, std::string_view body) { send(type, body); };
  return std::make_unique<NodeCheck>(loop_, std::move(node));
}

void AgentCore::take_output(int rank, StreamId stream, std::string_view bytes) {
  if (is_abandoned_) {
    return;  // read and dropped: nobody is left to show it to, and a full pipe would keep the rank from ending
  }
  credit_ -= bytes.size();
  launcher_->send_frame(AgentMessage::kOutput, output_frame(rank, stream, bytes));
}

void AgentCore::on_credit(std::uint64_t bytes) {
  credit_ += bytes;
  for (const auto& rank : ranks_) {
    rank->resume();
  }
}

InputFeed::Sink AgentCore::input_sink() {
  InputFeed::Sink sink;
  sink.on_taken = [this](std::uint64_t bytes) { send(AgentMessage::kInputCredit, count_body(bytes)); };
  sink.on_over = [this] { send(AgentMessage::kInputOver); };
  return sink;
}

void AgentCore::on_child_signal() {
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    const auto found =
        std::find_if(ranks_.begin(), ranks_.end(), [pid](const auto& rank) { return rank->pid() == pid; });
    if (found == ranks_.end()) {
      relays_->on_exited(pid, ExitStatus::from_wait(status));
      continue;  // or a process that a rank had left behind
    }
    ExitStatus exit_status = ExitStatus::from_wait(status);
    const ExitDetail detail = explain(pid, exit_status);
    hub_->catch_up();
    (*found)->mark_exited(exit_status);
    input_.drop((*found)->rank());
    send(AgentMessage::kExited, ExitedMessage{(*found)->rank(), exit_status, detail}.encode());
  }
  begin_sweep_if_finished();
  if (is_sweeping_ && !is_done_ && is_nothing_left()) {
    finish();
  }
}

ExitDetail AgentCore::explain(pid_t pid, ExitStatus& status) {
  ExitDetail detail;
  if (status.has_core) {
    detail.core = find_core({pid, status.value, cwd_, own_host_name()});
  }
  // A shell tells of a child that was killed so by its own code. Once we stop the ranks, the signal is ours.
  if (status.shell_code() == 128 + SIGKILL && !is_stopping_) {
    OomWatch::Finding finding = oom_watch_.look(pid);
    status.out_of_memory =
        status.kind == ExitStatus::Kind::kSignalled && finding.verdict == OomWatch::Verdict::kCertain;
    detail.memory = std::move(finding.evidence);
  }
  return detail;
}

Result<void> AgentCore::on_end_rank(const Frame& frame) {
  HVD_TRY_ASSIGN(const auto rank_and_signal, decode_two_numbers(frame.body));
  for (const auto& rank : ranks_) {
    if (rank->rank() == rank_and_signal.first) {
      rank->signal_group(rank_and_signal.second);
    }
  }
  return {};
}

void AgentCore::climb(int signo, Duration grace, const std::vector<std::int32_t>& spared) {
  is_stopping_ = true;
  again_.clear();
  for (const auto& rank : ranks_) {
    if (signo == SIGKILL || std::find(spared.begin(), spared.end(), rank->rank()) == spared.end()) {
      rank->signal_group(signo);
    }
  }
  let_continue();  // one that is stopped would not see the signal
  loop_.cancel(ladder_timer_);
  ladder_timer_ = 0;
  if (signo != SIGKILL) {
    ladder_timer_ = loop_.after(grace, [this] { climb(SIGKILL, Duration::zero()); });
  }
  begin_sweep_if_finished();
}

void AgentCore::suspend() {
  launcher_->expect_silence(true);
  is_suspended_ = !is_stopping_;
  if (is_suspended_) {
    for (const auto& rank : ranks_) {
      rank->signal_group(SIGSTOP);
    }
  }
  send(AgentMessage::kSuspended);
}

void AgentCore::let_continue() {
  launcher_->expect_silence(false);
  if (std::exchange(is_suspended_, false)) {
    for (const auto& rank : ranks_) {
      rank->signal_group(SIGCONT);
    }
  }
}

bool AgentCore::all_finished() const {
  const bool may_restart = may_restart_ && !is_stopping_;
  return std::all_of(ranks_.begin(), ranks_.end(), [may_restart](const auto& rank) {
    return rank->is_finished() && !(may_restart && rank->has_failed());
  });
}

void AgentCore::begin_sweep_if_finished() {
  if (is_sweeping_ || is_done_ || !(has_started_ || is_stopping_) || !all_finished()) {
    return;
  }
  is_sweeping_ = true;
  loop_.cancel(ladder_timer_);
  sweep_began_ = loop_.now();
  sweep(SIGTERM);
}

bool AgentCore::is_nothing_left() const {
  if (!relays_->is_idle()) {
    return left_behind().empty();
  }
  siginfo_t none{};  // the same, without reading all of /proc
  return ::waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

std::vector<pid_t> AgentCore::left_behind() const {
  std::vector<pid_t> left = children_of_self();
  std::erase_if(left, [this](pid_t pid) { return relays_->owns(pid); });
  return left;
}

// Ends it: daemons, data loaders, children that made their own session.
void AgentCore::sweep(int signo) {
  sweep_timer_ = 0;
  if (is_nothing_left()) {
    finish();
    return;
  }
  const std::vector<pid_t> left = left_behind();
  if (loop_.now() - sweep_began_ > kSweepLimit) {
    for (const pid_t pid : left) {
      send(AgentMessage::kProblem,
           "process " + std::to_string(pid) + " cannot be killed (is it in a hung system call?)");
    }
    finish();
    return;
  }
  signal_children(left, signo);
  sweep_timer_ =
      loop_.after(signo == SIGKILL ? Duration(kSweepRetry) : Duration(kSweepGrace), [this] { sweep(SIGKILL); });
}

void AgentCore::finish() {
  if (is_done_) {
    return;
  }
  is_done_ = true;
  loop_.cancel(sweep_timer_);
  send(AgentMessage::kDone);
  if (is_abandoned_) {
    leave();
  }
}

// The nodes behind this one were let go before it, through it: it stays until they have heard that.
void AgentCore::leave() {
  is_leaving_ = true;
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
  on_end(is_guarded ? "it got " + signal_name(signo) : "its guardian was killed");
}

void AgentCore::on_end(const std::string& why) {
  if (signal_timer_ != 0 || is_abandoned_) {
    return;
  }
  // Before the ranks' own ends: they die of it, and must not be taken for the cause.
  send(AgentMessage::kEnding, why);
  if (options_.signal_patience == Duration::zero()) {
    abandon(why);
  } else {
    signal_timer_ = loop_.after(options_.signal_patience, [this, why] { abandon(why); });
  }
}

void AgentCore::abandon(const std::string& why) {
  if (is_abandoned_) {
    return;
  }
  is_abandoned_ = true;
  check_.reset();
  credit_ = UINT64_MAX / 2;  // drain the pipes, so that ranks can end
  for (const auto& rank : ranks_) {
    rank->resume();
  }
  if (is_done_) {
    leave();
    return;
  }
  log_.write(LogLevel::kDebug, why + "; stopping this node's ranks");
  hub_->send_notice(why);
  climb(SIGTERM, options_.lost_grace);
}

}  // namespace hvd::launch
