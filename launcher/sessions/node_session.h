// NodeSession is the launcher's conversation with one node's agent: frames come in, typed calls go out.
//
// Where reconnecting is allowed it outlives its connection. When the connection breaks or falls silent, the session
// opens new ones until one reaches the agent again or the time for it is over. No message is lost or delivered twice
// (launcher/wire/messages.h).
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/placement/placement.h"
#include "launcher/sessions/heartbeat.h"
#include "launcher/sessions/return_attempts.h"
#include "launcher/sessions/session_inbox.h"
#include "launcher/sessions/session_sink.h"
#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"
#include "launcher/wire/resend_queue.h"
#include "runtime/base/frame.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class NodeSession final : private StreamSink {
 public:
  NodeSession(EventLoop& loop, const NodePlan& plan, int job_size, SessionSink& sink);
  ~NodeSession() override = default;
  NodeSession(const NodeSession&) = delete;
  NodeSession& operator=(const NodeSession&) = delete;

  void open(Transport& transport);
  // Sends a message. While there is no connection the message waits for the next one.
  void send(AgentMessage type, std::string_view body = {}) {
    send_frame(type, std::make_shared<const std::string>(agent_frame(type, body)));
  }
  // Does the same with a whole frame, which several sessions may share.
  void send_frame(AgentMessage type, std::shared_ptr<const std::string> frame);
  // It was heard within the time in which it is to be heard. Always true of a node without heartbeats.
  [[nodiscard]] bool is_in_touch() const;
  [[nodiscard]] bool is_away() const { return stage_ == Stage::kAway || stage_ == Stage::kReturning; }
  // Does not wait for it to come back or to be heard, if it is away or not in touch.
  void give_up();
  // Sends heartbeats from now on, and takes silence for three intervals as a broken connection. Once the ranks were
  // started, the session then reconnects for as long as `reconnect` (zero: not at all). Call it before Welcome.
  void watch_connection(Duration heartbeat, Duration reconnect, const std::string& token);
  // Closes the agent's input, which allows it to end, with these last words.
  void close_input(const ByeMessage& bye = {});
  [[nodiscard]] bool is_open() const { return stream_ != nullptr && stage_ != Stage::kOver; }
  // True when the session is open and an agent has answered, so that its orderly end must be awaited.
  [[nodiscard]] bool has_agent() const { return is_open() && is_reached_; }
  // True when its ranks were started, the agent has not reported Done, and the session is not over.
  [[nodiscard]] bool is_unfinished() const { return has_started_ && !is_done_ && stage_ != Stage::kOver; }
  // True once its ranks were told to start.
  [[nodiscard]] bool has_started() const { return has_started_; }
  // Returns how long the agent goes on without a sign of life from us; zero: it notices at once when we are gone.
  [[nodiscard]] Duration agent_patience() const;
  // Returns for how long from now an agent that is not in touch may have ranks, where it takes `grace` to end them.
  // Zero: it has none, or is in touch.
  [[nodiscard]] Duration ranks_may_stay(Duration grace) const;
  [[nodiscard]] const NodePlan& plan() const { return plan_; }
  // Returns how the node was reached; known once the agent is ready.
  [[nodiscard]] const Opened& opened() const { return opened_; }
  [[nodiscard]] const std::optional<ReadyMessage>& ready() const { return ready_; }

 private:
  enum class Stage : std::uint8_t {
    kOpen,       // being opened, or open
    kAway,       // no connection, until the next attempt
    kReturning,  // an attempt at a new connection is under way
    kOver
  };

  void on_open(const Opened& opened) override;
  void on_progress(const std::string& what) override;
  void on_notice(const std::string& what) override;
  void on_bytes(Bytes bytes) override;
  void on_closed(const Error& why) override;
  Result<void> on_frame(const Frame& frame);
  void beat();
  void send_ack();
  // Drops the connection; the session itself may go on.
  void disconnect(const Error& reason);
  void try_again();
  void on_attempt_failed(const Error& why);
  Result<void> on_resumed(std::uint64_t received);
  void lose(const Error& why);

  const NodePlan plan_;
  SessionSink& sink_;
  const SessionInbox inbox_;
  Transport* transport_ = nullptr;
  std::unique_ptr<Stream> stream_;
  FrameDecoder decoder_{kAgentFrames};
  std::optional<ReadyMessage> ready_;
  Opened opened_;
  Stage stage_ = Stage::kOpen;
  Heartbeat heartbeat_;
  // state that a new connection needs
  ReturnAttempts attempts_;
  std::string token_;
  bool has_started_ = false;
  bool is_resumable_ = false;  // true from Start to Done
  bool is_done_ = false;
  bool is_reached_ = false;
  bool was_resumed_ = false;
  bool has_agent_ended_ = false;  // somebody there has said so
  ResendQueue resend_;
  std::uint64_t received_ = 0;
  std::uint64_t acknowledged_ = 0;  // how many of received_ the agent knows of
};

}  // namespace hvd::launch
