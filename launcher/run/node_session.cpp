#include "launcher/run/node_session.h"

#include "runtime/base/bytes.h"

namespace hvd::launch {
namespace {

constexpr int kMissedHeartbeats = 6;

}  // namespace

NodeSession::NodeSession(EventLoop& loop, const NodePlan& plan, int job_size, SessionSink& sink)
    : loop_(loop), plan_(plan), job_size_(job_size), sink_(sink), last_heard_(loop.now()) {}

NodeSession::~NodeSession() {
  loop_.cancel(heartbeat_timer_);
}

void NodeSession::open(Transport& transport) {
  stream_ = transport.open(NodeTarget{plan_.host.name, plan_.host.user, plan_.host.port}, *this);
}

void NodeSession::send(AgentMessage type, std::string_view body) {
  if (is_open()) {
    stream_->write(agent_frame(type, body));
  }
}

void NodeSession::close_input() {
  if (is_open()) {
    stream_->close_input();
  }
}

void NodeSession::start_heartbeat(Duration interval) {
  heartbeat_ = interval;
  last_heard_ = loop_.now();
  heartbeat_timer_ = loop_.after(interval, [this] { beat(); });
}

void NodeSession::beat() {
  heartbeat_timer_ = 0;
  if (loop_.now() - last_heard_ > heartbeat_ * kMissedHeartbeats) {
    lose(Error(Code::kTimeout,
               "no sign of life from its agent for " +
                   std::to_string(std::chrono::duration_cast<std::chrono::seconds>(loop_.now() - last_heard_).count()) +
                   " s; the host or the network to it is down"));
    return;
  }
  send(AgentMessage::kHeartbeat);
  heartbeat_timer_ = loop_.after(heartbeat_, [this] { beat(); });
}

void NodeSession::on_open(const Opened& opened) {
  opened_ = opened;
}

void NodeSession::on_progress(const std::string& what) {
  sink_.on_progress(plan_.index, what);
}

void NodeSession::on_notice(const std::string& what) {
  sink_.on_notice(plan_.index, what);
}

void NodeSession::on_bytes(Bytes bytes) {
  last_heard_ = loop_.now();
  decoder_.feed(bytes);
  while (!is_over_) {
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
  lose(why);
}

void NodeSession::lose(const Error& why) {
  if (is_over_) {
    return;
  }
  is_over_ = true;
  loop_.cancel(heartbeat_timer_);
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
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::kReady: {
      HVD_TRY_ASSIGN(ready_, ReadyMessage::decode(frame.body));
      sink_.on_ready(plan_.index, *ready_);
      return {};
    }
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
    case AgentMessage::kDone:
      sink_.on_done(plan_.index);
      return {};
    case AgentMessage::kJoined:
    case AgentMessage::kHeartbeat:
      return {};
    default:
      return Error(Code::kProtocol,
                   "its agent sent a message of type " + std::to_string(frame.type) + ", which is not for a launcher");
  }
}

}  // namespace hvd::launch
