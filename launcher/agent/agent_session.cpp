#include "launcher/agent/agent_session.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/io/pass_fds.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// A connection counts as lively if something came in the last so many heartbeat intervals before it ended.
constexpr int kLivelyHeartbeats = 2;
// When a lively connection ends, a launcher that still runs notices at once and returns long before the reconnect
// timeout. One that was killed keeps the ranks for no longer than this part of the timeout.
constexpr int kEndedPart = 4;
constexpr auto kHandOverTime = std::chrono::seconds(5);
constexpr std::size_t kMaxVisitors = 8;

}  // namespace

Result<std::unique_ptr<AgentSession>> AgentSession::create(EventLoop& loop, AgentConnection connection,
                                                           const std::string& resume_path, Sink sink, Log& log) {
  std::unique_ptr<AgentSession> session(new AgentSession(loop, std::move(sink), log));
  HVD_TRY(session->listen(resume_path));
  HVD_TRY_ASSIGN(session->channel_, session->make_channel(std::move(connection)));
  return session;
}

AgentSession::AgentSession(EventLoop& loop, Sink sink, Log& log)
    : loop_(loop), sink_(std::move(sink)), log_(log), last_heard_(loop.now()) {}

AgentSession::~AgentSession() {
  loop_.cancel(patience_timer_);
  loop_.unwatch(holder_watch_);
  accepting_.reset();
  for (const auto& [number, visitor] : visitors_) {
    loop_.unwatch(visitor.watch);
  }
}

Result<void> AgentSession::listen(const std::string& resume_path) {
  HVD_TRY_ASSIGN(listener_, listen_unix(resume_path));
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [this](Fd fd) { greet_visitor(std::move(fd)); };
  handlers.on_trouble = [this](const Error& why) {
    log_.write(LogLevel::kWarning, "a new connection to the launcher cannot be taken over for now: " + why.message());
  };
  HVD_TRY_ASSIGN(accepting_, AcceptWatch::create(loop_, listener_.get(), std::move(handlers)));
  return {};
}

Result<std::unique_ptr<ByteChannel>> AgentSession::make_channel(AgentConnection connection) {
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this](Bytes bytes) { on_bytes(bytes); };
  handlers.on_closed = [this](const Error&) { on_closed(); };
  return ByteChannel::create(loop_, std::move(connection.in), std::move(connection.out), std::move(handlers),
                             std::move(connection.filter));
}

void AgentSession::on_welcome(const WelcomeMessage& welcome) {
  token_ = welcome.token;
  heartbeat_ = std::chrono::milliseconds(welcome.heartbeat_ms);
  // Without heartbeats nobody would notice that the launcher stays away.
  reconnect_ = std::chrono::milliseconds(welcome.heartbeat_ms > 0 ? welcome.reconnect_ms : 0);
  watch_launcher();
}

void AgentSession::send_frame(AgentMessage type, std::string_view frame) {
  if (type == AgentMessage::kInputCredit) {
    send_ack();  // what the launcher keeps of its input for us, it need not keep any longer than the credit is used
  }
  if (reconnect_ > Duration::zero() && is_numbered(type)) {
    resend_.keep(std::make_shared<const std::string>(frame));
  }
  if (channel_) {
    channel_->write(frame);
  }
}

void AgentSession::send_ack() {
  if (reconnect_ > Duration::zero() && received_ != acknowledged_) {
    acknowledged_ = received_;
    send(AgentMessage::kAck, count_body(received_));
  }
}

void AgentSession::on_bytes(Bytes bytes) {
  last_heard_ = loop_.now();
  decoder_.feed(bytes);
  while (channel_) {  // it may be handed over by a frame
    auto next = decoder_.next();
    if (next.ok() && !next.value()) {
      return;
    }
    const Result<void> handled = next.ok() ? on_frame(*next.value()) : Result<void>(next.error());
    if (!handled.ok()) {
      send(AgentMessage::kProblem, handled.error().message());
      over(handled.error().message());
      return;
    }
  }
}

Result<void> AgentSession::on_frame(const Frame& frame) {
  const auto type = static_cast<AgentMessage>(frame.type);
  if (is_numbered(type)) {
    ++received_;
    return sink_.on_frame(frame);
  }
  if (is_about_tree(type)) {
    return sink_.on_frame(frame);
  }
  if (is_relayed(type) && !token_.empty()) {
    return sink_.on_relay(frame);
  }
  if (type == AgentMessage::kHeartbeat) {
    send(AgentMessage::kHeartbeat);
    send_ack();
    return {};
  }
  if (type == AgentMessage::kAck) {
    HVD_TRY_ASSIGN(const std::uint64_t received, decode_count(frame.body));
    return resend_.acknowledge(received);
  }
  if (type == AgentMessage::kBye) {
    HVD_TRY_ASSIGN(const ByeMessage bye, ByeMessage::decode(frame.body));
    sink_.on_bye(bye);
    over(bye.why.empty() ? "the launcher has ended the session" : bye.why);
    return {};
  }
  if (type == AgentMessage::kResume && token_.empty()) {
    HVD_TRY_ASSIGN(const ResumeMessage resume, ResumeMessage::decode(frame.body));
    if (const auto handed = hand_over(resume); !handed.ok()) {
      if (handed.error().code() == Code::kTimeout) {
        over(handed.error().message());  // it may only be busy: the launcher tries again
        return {};
      }
      send(AgentMessage::kNoResume, handed.error().message());
    }
    return {};
  }
  return Error(Code::kProtocol,
               "the launcher sent a message of type " + std::to_string(frame.type) + ", which is not for an agent");
}

void AgentSession::on_closed() {
  if (!is_over_) {  // else it is an end in order, and who is behind us may still be hearing of it
    sink_.on_disconnected();
  }
  if (reconnect_ == Duration::zero() || !sink_.is_worth_waiting()) {
    // The output stays open until this process ends, so that the process that runs the command to us sees us at work.
    over("the launcher is gone");
    return;
  }
  channel_.reset();
  holder_.reset();
  closed_at_ = loop_.now();
  log_.write(LogLevel::kDebug, "the connection to the launcher is closed; waiting for a new one");
  watch_launcher();
}

void AgentSession::over(const std::string& why) {
  if (is_over_) {
    return;
  }
  is_over_ = true;
  loop_.cancel(patience_timer_);
  patience_timer_ = 0;
  sink_.on_over(why);
}

TimePoint AgentSession::patience_ends() const {
  const Duration for_return =
      reconnect_ > Duration::zero() && sink_.is_worth_waiting() ? reconnect_ + kReconnectSlack : Duration::zero();
  if (channel_) {
    return last_heard_ + heartbeat_ * kMissedHeartbeats + for_return;
  }
  const bool was_lively = closed_at_ - last_heard_ <= heartbeat_ * kLivelyHeartbeats;
  return closed_at_ + (was_lively ? std::min(for_return, reconnect_ / kEndedPart) : for_return);
}

// This runs with each heartbeat, so that it notices when this process was stopped in between.
void AgentSession::watch_launcher() {
  loop_.cancel(patience_timer_);
  patience_timer_ = 0;
  if (is_over_ || heartbeat_ == Duration::zero()) {
    return;
  }
  if (is_silence_expected_ && channel_) {
    last_heard_ = loop_.now();
  }
  const TimePoint end = patience_ends();
  if (loop_.now() >= end) {
    over("the launcher was silent for " + duration_text(loop_.now() - last_heard_));
    return;
  }
  const Duration step = std::min(heartbeat_, end - loop_.now());
  patience_due_ = loop_.now() + step;
  patience_timer_ = loop_.after(step, [this] {
    patience_timer_ = 0;
    discount_own_stop();
    watch_launcher();
  });
}

// While this process was stopped (SIGSTOP, a halted virtual machine) it heard nobody, and perhaps the launcher was
// stopped too.
void AgentSession::discount_own_stop() {
  const Duration late = loop_.now() - patience_due_;
  if (late > heartbeat_) {
    last_heard_ = std::min(loop_.now(), last_heard_ + late);
    closed_at_ = std::min(loop_.now(), closed_at_ + late);
  }
}

Result<void> AgentSession::hand_over(const ResumeMessage& resume) {
  if (channel_->is_filtered()) {
    return Error(Code::kProtocol, "a connection that is encrypted stays with the agent that has made it");
  }
  auto found = connect_unix(resume.resume_path, Deadline::after(kHandOverTime));
  if (!found.ok()) {
    const int why = found.error().sys_errno();
    return why == ECONNREFUSED || why == ENOENT
               ? Error(Code::kNotFound, "its agent does not run any more")
               : Error(Code::kTimeout, "its agent took no connection for " + duration_text(kHandOverTime));
  }
  Fd agent = std::move(found).value();
  HVD_TRY_ASSIGN(const uid_t owner, peer_uid(agent.get()));
  if (owner != ::geteuid()) {
    return Error(Code::kAuth, "its agent belongs to another user");
  }
  const std::string body = resume.encode();
  HVD_TRY(pass_fds(agent.get(), channel_->in_fd(), channel_->out_fd(), as_bytes(body)));
  channel_.reset();
  holder_ = std::move(agent);
  // The process that started the holder takes its end for the connection's, so the holder lives as long as the
  // connection.
  HVD_TRY_ASSIGN(holder_watch_, loop_.watch(holder_.get(), EPOLLIN, [this](std::uint32_t) {
    loop_.unwatch(holder_watch_);
    over("the connection that was handed over has ended");
  }));
  return {};
}

// A visitor that says nothing makes room for others.
void AgentSession::greet_visitor(Fd fd) {
  const auto owner = peer_uid(fd.get());
  if (!owner.ok() || owner.value() != ::geteuid()) {
    return;
  }
  if (visitors_.size() >= kMaxVisitors) {
    take_visitor(visitors_.begin()->first);
  }
  const int number = next_visitor_++;
  Visitor visitor{std::move(fd), 0};
  auto watch = loop_.watch(visitor.fd.get(), EPOLLIN, [this, number](std::uint32_t) { hear_visitor(number); });
  if (watch.ok()) {
    visitor.watch = watch.value();
    visitors_.emplace(number, std::move(visitor));
  }
}

AgentSession::Visitor AgentSession::take_visitor(int number) {
  Visitor visitor = std::move(visitors_.at(number));
  visitors_.erase(number);
  loop_.unwatch(visitor.watch);
  return visitor;
}

void AgentSession::hear_visitor(int number) {
  if (const auto adopted = adopt(take_visitor(number)); !adopted.ok()) {
    log_.write(LogLevel::kDebug, "a new connection was refused: " + adopted.error().message());
  }
}

Result<void> AgentSession::adopt(Visitor visitor) {
  HVD_TRY_ASSIGN(PassedFds passed, receive_fds(visitor.fd.get()));
  HVD_TRY_ASSIGN(const ResumeMessage message, ResumeMessage::decode(passed.bytes));
  if (reconnect_ == Duration::zero() || message.token != token_) {
    return Error(Code::kAuth, "it is not of this session");
  }
  HVD_TRY(resume(std::move(passed.fds[0]), std::move(passed.fds[1]), message));
  holder_ = std::move(visitor.fd);
  return {};
}

Result<void> AgentSession::resume(Fd in, Fd out, const ResumeMessage& message) {
  HVD_TRY_ASSIGN(auto channel, make_channel({std::move(in), std::move(out), nullptr}));
  const Result<void> known = is_over_ ? Error(Code::kCancelled, "its agent has given up waiting, and ended its ranks")
                                      : resend_.acknowledge(message.received);
  if (!known.ok()) {
    channel->write(agent_frame(AgentMessage::kNoResume, known.error().message()));
    return known;
  }
  sink_.on_disconnected();  // from the old one, if it still seemed to be there
  channel_ = std::move(channel);
  decoder_ = FrameDecoder(kAgentFrames);
  last_heard_ = loop_.now();
  acknowledged_ = received_;
  send(AgentMessage::kResumed, count_body(received_));
  channel_->write(resend_.unacknowledged());
  watch_launcher();
  return {};
}

}  // namespace hvd::launch
