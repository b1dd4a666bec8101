#include "launcher/sessions/node_session.h"

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// These limit one attempt at a new connection, and the waits between attempts. The network may be back at any moment,
// so the waits stay short. An attempt ends after kAttemptTime even in a network that drops packets silently.
constexpr Duration kAttemptTime = std::chrono::seconds(20);
constexpr Duration kLeastAttempt = std::chrono::seconds(1);
constexpr Duration kFirstWait = std::chrono::milliseconds(500);
constexpr Duration kLongestWait = std::chrono::seconds(4);

Error silence(Duration time) {
  return {Code::kTimeout,
          "no sign of life from its agent for " + duration_text(time) + "; the host or the network to it is down"};
}

}  // namespace

Result<void> SessionSink::on_answer(int, AgentMessage type, const std::string&) {
  return Error(Code::kProtocol, "its agent sent a message of type " + std::to_string(static_cast<std::uint16_t>(type)) +
                                    ", which was not asked for");
}

NodeSession::NodeSession(EventLoop& loop, const NodePlan& plan, int job_size, SessionSink& sink)
    : loop_(loop), plan_(plan), job_size_(job_size), sink_(sink), last_heard_(loop.now()) {}

NodeSession::~NodeSession() {
  loop_.cancel(heartbeat_timer_);
  loop_.cancel(attempt_timer_);
}

void NodeSession::open(Transport& transport) {
  transport_ = &transport;
  stream_ = transport.open(target(), *this);
}

NodeTarget NodeSession::target() const {
  return {plan_.host.name, plan_.host.user, plan_.host.port, plan_.ranks.front().rank};
}

void NodeSession::send_frame(AgentMessage type, std::shared_ptr<const std::string> frame) {
  if (!is_open()) {
    return;
  }
  if (type == AgentMessage::kStart) {
    has_started_ = true;
    is_resumable_ = reconnect_ > Duration::zero();
  }
  if (type == AgentMessage::kCredit || type == AgentMessage::kResultCredit) {
    send_ack();  // once the credit is used, the agent no longer needs to keep what it has sent for a resend
  }
  if (stage_ == Stage::kOpen) {
    stream_->write(*frame);
  }
  if (reconnect_ > Duration::zero() && is_numbered(type)) {
    resend_.keep(std::move(frame));
  }
}

void NodeSession::send_ack() {
  if (reconnect_ > Duration::zero() && received_ != acknowledged_) {
    acknowledged_ = received_;
    send(AgentMessage::kAck, count_body(received_));
  }
}

Duration NodeSession::agent_patience() const {
  return heartbeat_ * kMissedHeartbeats +
         (reconnect_ > Duration::zero() ? reconnect_ + kReconnectSlack : Duration::zero());
}

void NodeSession::close_input(const ByeMessage& bye) {
  if (!is_open()) {
    return;
  }
  if (stage_ == Stage::kOpen) {
    send(AgentMessage::kBye, bye.encode());
    is_resumable_ = false;
    stream_->close_input();
  } else {
    // The agent cannot be reached, and gives up by itself.
    stage_ = Stage::kOver;
    loop_.cancel(attempt_timer_);
  }
}

void NodeSession::watch_connection(Duration heartbeat, Duration reconnect, const std::string& token) {
  heartbeat_ = heartbeat;
  reconnect_ = reconnect;
  token_ = token;
  last_heard_ = loop_.now();
  beat_later();
}

bool NodeSession::is_in_touch() const {
  // Half an interval more: the answer is under way.
  return stage_ == Stage::kOpen && (heartbeat_ == Duration::zero() || loop_.now() - last_heard_ <= heartbeat_ * 3 / 2);
}

void NodeSession::give_up() {
  if (is_away()) {
    lose(why_away_);
  } else if (!is_in_touch()) {
    lose(silence(loop_.now() - last_heard_));
  }
}

void NodeSession::beat_later() {
  // The last look comes at the very end of the node's time, and not up to an interval later.
  const Duration left = last_heard_ + heartbeat_ * kMissedHeartbeats - loop_.now() + std::chrono::milliseconds(1);
  const Duration delay = left > Duration::zero() ? std::min(left, heartbeat_) : heartbeat_;
  beat_due_ = loop_.now() + delay;
  heartbeat_timer_ = loop_.after(delay, [this] { beat(); });
}

void NodeSession::beat() {
  heartbeat_timer_ = 0;
  if (loop_.now() - beat_due_ > heartbeat_) {
    last_heard_ = loop_.now();  // the delay is ours: this process was stopped (Ctrl-Z), or its machine was asleep
  }
  if (loop_.now() - last_heard_ > heartbeat_ * kMissedHeartbeats) {
    disconnect(silence(loop_.now() - last_heard_));
    return;
  }
  send(AgentMessage::kHeartbeat);
  send_ack();
  beat_later();
}

void NodeSession::on_open(const Opened& opened) {
  is_reached_ = true;
  if (stage_ == Stage::kOpen) {
    opened_ = opened;
  }
}

void NodeSession::on_progress(const std::string& what) {
  sink_.on_progress(plan_.index, what);
}

void NodeSession::on_notice(const std::string& what) {
  if (stage_ == Stage::kOpen) {  // report it once, not with every attempt
    sink_.on_notice(plan_.index, what);
  }
}

void NodeSession::on_bytes(Bytes bytes) {
  last_heard_ = loop_.now();
  decoder_.feed(bytes);
  while (stage_ == Stage::kOpen || stage_ == Stage::kReturning) {
    auto next = decoder_.next();
    if (next.ok() && !next.value()) {
      return;
    }
    const Result<void> handled = next.ok() ? on_frame(*next.value()) : Result<void>(next.error());
    if (!handled.ok()) {
      lose(handled.error());
    }
  }
}

void NodeSession::on_closed(const Error& why) {
  if (stage_ == Stage::kReturning) {
    fail_attempt(why);
  } else {
    disconnect(why);
  }
}

void NodeSession::disconnect(const Error& reason) {
  if (stage_ != Stage::kOpen) {
    return;
  }
  // A transport names the host in its errors, for lists of hosts that could not be opened. For a running job the report
  // names the host already.
  const std::string prefix = plan_.host.name + ": ";
  const bool names_host = has_started_ && reason.message().starts_with(prefix);
  const Error why(reason.code(), reason.message().substr(names_host ? prefix.size() : 0));
  // The end of a resumed connection is not the end of the agent, but of the process that carried the connection.
  if (!is_resumable_ || (why.code() == kAgentEnded && !was_resumed_)) {
    return lose(why);
  }
  stage_ = Stage::kAway;
  loop_.cancel(heartbeat_timer_);
  heartbeat_timer_ = 0;
  why_away_ = why;
  away_since_ = loop_.now();
  attempts_ = 0;
  sink_.on_away(plan_.index, why, reconnect_);
  try_again_in(Duration::zero());
}

// Runs from the loop even without a delay: we may be inside a call of the stream that has broken.
void NodeSession::try_again_in(Duration delay) {
  stage_ = Stage::kAway;
  loop_.cancel(attempt_timer_);
  attempt_timer_ = loop_.after(delay, [this] { try_again(); });
}

void NodeSession::try_again() {
  stage_ = Stage::kReturning;
  decoder_ = FrameDecoder(kAgentFrames);
  const Duration left = reconnect_ - (loop_.now() - away_since_);
  const Duration patience = std::clamp(left, kLeastAttempt, kAttemptTime);
  attempt_timer_ = loop_.after(patience, [this, patience] {
    attempt_timer_ = 0;
    fail_attempt(Error(Code::kTimeout, "no answer within " + duration_text(patience)));
  });
  stream_.reset();
  stream_ = transport_->open(target(), *this);
}

void NodeSession::fail_attempt(const Error& why) {
  const Duration away = loop_.now() - away_since_;
  if (away >= reconnect_) {
    return lose(Error(Code::kLostPeer, why_away_.message() + "; not reached again within " + duration_text(away) +
                                           ": " + why.message()));
  }
  sink_.on_progress(plan_.index, "not reached yet: " + why.message());
  const Duration wait = std::min(kLongestWait, kFirstWait * (1 << std::min(attempts_++, 4)));
  try_again_in(std::min(wait, reconnect_ - away));
}

Result<void> NodeSession::on_resumed(std::uint64_t received) {
  HVD_TRY(resend_.acknowledge(received));
  stage_ = Stage::kOpen;
  was_resumed_ = true;
  loop_.cancel(attempt_timer_);
  attempt_timer_ = 0;
  acknowledged_ = received_;
  stream_->write(resend_.unacknowledged());
  beat_later();
  sink_.on_back(plan_.index, loop_.now() - away_since_);
  return {};
}

void NodeSession::lose(const Error& why) {
  if (stage_ == Stage::kOver) {
    return;
  }
  stage_ = Stage::kOver;
  loop_.cancel(heartbeat_timer_);
  loop_.cancel(attempt_timer_);
  sink_.on_lost(plan_.index, why);
}

Result<void> NodeSession::check_rank(int rank) const {
  const bool is_ours = rank >= plan_.ranks.front().rank && rank <= plan_.ranks.back().rank && rank < job_size_;
  if (!is_ours) {
    return Error(Code::kProtocol, "the agent speaks of rank " + std::to_string(rank) + ", which is not on this node");
  }
  return {};
}

Result<void> NodeSession::on_frame(const Frame& frame) {
  const auto type = static_cast<AgentMessage>(frame.type);
  if (stage_ == Stage::kReturning) {
    switch (type) {
      case AgentMessage::kReady:
        stream_->write(
            agent_frame(AgentMessage::kResume, ResumeMessage{ready_->resume_path, token_, received_}.encode()));
        return {};
      case AgentMessage::kResumed: {
        HVD_TRY_ASSIGN(const std::uint64_t received, decode_count(frame.body));
        return on_resumed(received);
      }
      case AgentMessage::kNoResume:
        return Error(Code::kLostPeer, why_away_.message() + "; " + frame.body);
      default:
        break;
    }
  } else if (is_relayed(type)) {
    return sink_.on_relay(plan_.index, frame);
  } else if (is_about_tree(type)) {
    return sink_.on_answer(plan_.index, type, frame.body);
  } else if (is_numbered(type)) {
    ++received_;
    return on_numbered(frame);
  } else if (type == AgentMessage::kReady && !ready_) {
    HVD_TRY_ASSIGN(ready_, ReadyMessage::decode(frame.body));
    sink_.on_ready(plan_.index, *ready_);
    return {};
  } else if (type == AgentMessage::kAck) {
    HVD_TRY_ASSIGN(const std::uint64_t received, decode_count(frame.body));
    return resend_.acknowledge(received);
  } else if (type == AgentMessage::kHeartbeat) {
    return {};
  }
  return Error(Code::kProtocol,
               "its agent sent a message of type " + std::to_string(frame.type) + ", which was not to come");
}

Result<void> NodeSession::on_numbered(const Frame& frame) {
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::kStarted: {
      ByteReader in(frame.body);
      const int rank = in.i32();
      const int pid = in.i32();
      HVD_TRY(check_rank(rank));
      sink_.on_started(rank, pid);
      return {};
    }
    case AgentMessage::kStartFailed: {
      HVD_TRY_ASSIGN(const StartFailedMessage failed, StartFailedMessage::decode(frame.body));
      HVD_TRY(check_rank(failed.rank));
      sink_.on_start_failed(failed);
      return {};
    }
    case AgentMessage::kOutput: {
      HVD_TRY_ASSIGN(const OutputMessage output, OutputMessage::decode(frame.body));
      HVD_TRY(check_rank(output.rank));
      sink_.on_output(plan_.index, output);
      return {};
    }
    case AgentMessage::kOutputEnd: {
      HVD_TRY_ASSIGN(const OutputMessage end, OutputMessage::decode(frame.body));
      HVD_TRY(check_rank(end.rank));
      sink_.on_output_end(end.rank, end.stream);
      return {};
    }
    case AgentMessage::kInputCredit: {
      HVD_TRY_ASSIGN(const std::uint64_t bytes, decode_count(frame.body));
      sink_.on_input_credit(plan_.index, bytes);
      return {};
    }
    case AgentMessage::kInputOver:
      sink_.on_input_over(plan_.index);
      return {};
    case AgentMessage::kFailing: {
      HVD_TRY_ASSIGN(const FailingMessage failing, FailingMessage::decode(frame.body));
      HVD_TRY(check_rank(failing.rank));
      if (failing.news.by >= job_size_) {
        return Error(Code::kProtocol, "the agent speaks of a rank that the job does not have");
      }
      sink_.on_failing(failing);
      return {};
    }
    case AgentMessage::kExited: {
      HVD_TRY_ASSIGN(const ExitedMessage exited, ExitedMessage::decode(frame.body));
      HVD_TRY(check_rank(exited.rank));
      sink_.on_exited(exited);
      return {};
    }
    case AgentMessage::kExchange: {
      HVD_TRY_ASSIGN(const ExchangeMessage exchange, ExchangeMessage::decode(frame.body));
      HVD_TRY(check_rank(exchange.rank));
      sink_.on_exchange(exchange);
      return {};
    }
    case AgentMessage::kProblem:
      sink_.on_problem(plan_.index, frame.body);
      return {};
    case AgentMessage::kEnding:
      sink_.on_ending(plan_.index, frame.body);
      return {};
    case AgentMessage::kLeaving:
      sink_.on_leaving(plan_.index, frame.body);
      return {};
    case AgentMessage::kSuspended:
      sink_.on_suspended(plan_.index);
      return {};
    case AgentMessage::kSample: {
      HVD_TRY_ASSIGN(const SampleMessage sample, SampleMessage::decode(frame.body));
      for (const RankSample& rank : sample.ranks) {
        HVD_TRY(check_rank(rank.rank));
      }
      sink_.on_sample(plan_.index, sample);
      return {};
    }
    case AgentMessage::kDone:
      is_resumable_ = false;
      is_done_ = true;
      sink_.on_done(plan_.index);
      return {};
    case AgentMessage::kJoined: {
      HVD_TRY_ASSIGN(const JoinedMessage joined, JoinedMessage::decode(frame.body));
      HVD_TRY(check_rank(joined.rank));
      sink_.on_joined(joined);
      return {};
    }
    case AgentMessage::kClock:
    case AgentMessage::kSystem:
    case AgentMessage::kSoftware:
    case AgentMessage::kListening:
    case AgentMessage::kProbed:
    case AgentMessage::kStacks:
    case AgentMessage::kResultList:
    case AgentMessage::kResultBytes:
      return sink_.on_answer(plan_.index, static_cast<AgentMessage>(frame.type), frame.body);
    default:
      return Error(Code::kProtocol,
                   "its agent sent a message of type " + std::to_string(frame.type) + ", which is not for a launcher");
  }
}

}  // namespace hvd::launch
