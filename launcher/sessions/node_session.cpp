#include "launcher/sessions/node_session.h"

#include <algorithm>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

NodeTarget target_of(const NodePlan& plan) {
  return {plan.host.name, plan.host.user, plan.host.port, plan.ranks.front().rank};
}

Error silence_error(Duration time) {
  return {Code::kTimeout,
          "no sign of life from its agent for " + duration_text(time) + "; the host or the network to it is down"};
}

}  // namespace

NodeSession::NodeSession(EventLoop& loop, const NodePlan& plan, int job_size, SessionSink& sink)
    : plan_(plan),
      sink_(sink),
      inbox_(plan_, job_size, sink),
      heartbeat_(loop, {.beat = [this] { beat(); },
                        .on_silent = [this](Duration silence) { disconnect(silence_error(silence)); }}),
      attempts_(loop, {.on_attempt = [this] { try_again(); },
                       .on_failed = [this](const Error& why) { on_attempt_failed(why); },
                       .on_over = [this](const Error& why) { lose(why); }}) {}

void NodeSession::open(Transport& transport) {
  transport_ = &transport;
  stream_ = transport.open(target_of(plan_), *this);
}

void NodeSession::send_frame(AgentMessage type, std::shared_ptr<const std::string> frame) {
  if (!is_open()) {
    return;
  }
  if (type == AgentMessage::kStart) {
    has_started_ = true;
    is_resumable_ = attempts_.limit() > Duration::zero();
  }
  if (type == AgentMessage::kCredit || type == AgentMessage::kResultCredit) {
    send_ack();  // once the credit is used, the agent no longer needs to keep what it has sent for a resend
  }
  if (stage_ == Stage::kOpen) {
    stream_->write(*frame);
  }
  if (attempts_.limit() > Duration::zero() && is_numbered(type)) {
    resend_.keep(std::move(frame));
  }
}

void NodeSession::send_ack() {
  if (attempts_.limit() > Duration::zero() && received_ != acknowledged_) {
    acknowledged_ = received_;
    send(AgentMessage::kAck, count_body(received_));
  }
}

Duration NodeSession::agent_patience() const {
  const Duration limit = attempts_.limit();
  return heartbeat_.patience() + (limit > Duration::zero() ? limit + kReconnectSlack : Duration::zero());
}

Duration NodeSession::ranks_may_stay(Duration grace) const {
  const Duration patience = agent_patience();
  if (!has_started_ || is_done_ || has_agent_ended_ || is_in_touch() || patience == Duration::zero()) {
    return Duration::zero();
  }
  return std::max(patience + grace - heartbeat_.silence(), Duration::zero());
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
    attempts_.stop();
  }
}

void NodeSession::watch_connection(Duration heartbeat, Duration reconnect, const std::string& token) {
  attempts_.allow(reconnect);
  token_ = token;
  heartbeat_.begin(heartbeat);
}

bool NodeSession::is_in_touch() const {
  return stage_ == Stage::kOpen && heartbeat_.is_in_touch();
}

void NodeSession::give_up() {
  if (is_away()) {
    lose(attempts_.why());
  } else if (!is_in_touch()) {
    lose(silence_error(heartbeat_.silence()));
  }
}

void NodeSession::beat() {
  send(AgentMessage::kHeartbeat);
  send_ack();
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
  heartbeat_.hear();
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
    attempts_.fail(why);
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
  heartbeat_.pause();
  attempts_.begin(why);
  sink_.on_away(plan_.index, why, attempts_.limit());
  attempts_.try_soon();
}

void NodeSession::try_again() {
  stage_ = Stage::kReturning;
  decoder_ = FrameDecoder(kAgentFrames);
  stream_.reset();
  stream_ = transport_->open(target_of(plan_), *this);
}

void NodeSession::on_attempt_failed(const Error& why) {
  sink_.on_progress(plan_.index, "not reached yet: " + why.message());
  stage_ = Stage::kAway;
}

Result<void> NodeSession::on_resumed(std::uint64_t received) {
  HVD_TRY(resend_.acknowledge(received));
  stage_ = Stage::kOpen;
  was_resumed_ = true;
  attempts_.stop();
  acknowledged_ = received_;
  stream_->write(resend_.unacknowledged());
  heartbeat_.go_on();
  sink_.on_back(plan_.index, attempts_.away());
  return {};
}

void NodeSession::lose(const Error& why) {
  if (stage_ == Stage::kOver) {
    return;
  }
  stage_ = Stage::kOver;
  has_agent_ended_ = has_agent_ended_ || why.code() == kAgentEnded;
  heartbeat_.pause();
  attempts_.stop();
  sink_.on_lost(plan_.index, why);
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
        has_agent_ended_ = true;
        return Error(Code::kLostPeer, attempts_.why().message() + "; " + frame.body);
      default:
        break;
    }
  } else if (is_relayed(type)) {
    return sink_.on_relay(plan_.index, frame);
  } else if (is_about_tree(type)) {
    return sink_.on_answer(plan_.index, type, frame.body);
  } else if (is_numbered(type)) {
    ++received_;
    if (type == AgentMessage::kDone) {
      is_resumable_ = false;
      is_done_ = true;
    }
    return inbox_.deliver(frame);
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

}  // namespace hvd::launch
