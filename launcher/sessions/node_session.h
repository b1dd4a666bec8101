// NodeSession is the launcher's conversation with one node's agent: frames come in, typed calls go out.
//
// Where reconnecting is allowed it outlives its connection. When the connection breaks or falls silent, the session
// opens new ones until one reaches the agent again or the time for it is over. No message is lost or delivered twice
// (launcher/wire/messages.h).
//
// Thread: loop only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"
#include "launcher/wire/resend_queue.h"
#include "launcher/wire/sample_messages.h"
#include "runtime/base/frame.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// SessionSink receives what sessions report; `node` is the index in the placement. It is never called from inside a
// call to the session.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void on_ready(int node, const ReadyMessage& ready) = 0;
  virtual void on_progress(int node, const std::string& what) = 0;
  virtual void on_notice(int node, const std::string& what) = 0;
  // The node's connection broke. The session reconnects for as long as `patience`; then on_back or on_lost follows.
  virtual void on_away(int node, const Error& why, Duration patience) = 0;
  virtual void on_back(int node, Duration away) = 0;
  virtual void on_started(int rank, int pid) = 0;
  // The rank's runtime has connected to its agent, and is about to meet the others.
  virtual void on_joined(const JoinedMessage& joined) = 0;
  virtual void on_start_failed(const StartFailedMessage& failed) = 0;
  virtual void on_output(int node, const OutputMessage& output) = 0;
  virtual void on_output_end(int rank, StreamId stream) = 0;
  // The node's ranks can take this many more bytes of standard input; on_input_over: none of them takes any more.
  virtual void on_input_credit(int /*node*/, std::uint64_t /*bytes*/) {}
  virtual void on_input_over(int /*node*/) {}
  // The rank reported a failure. Whether and when it ends is reported separately, by on_exited.
  virtual void on_failing(const FailingMessage& /*failing*/) {}
  virtual void on_exited(const ExitedMessage& exited) = 0;
  virtual void on_exchange(const ExchangeMessage& exchange) = 0;
  virtual void on_problem(int node, const std::string& text) = 0;
  // The agent is about to end, because somebody other than us asked it to.
  virtual void on_ending(int node, const std::string& why) = 0;
  // The agent asks that its ranks leave the others when it suits these.
  virtual void on_leaving(int /*node*/, const std::string& /*why*/) {}
  // A Relay frame arrived, which belongs to a node that is reached through this one.
  virtual Result<void> on_relay(int node, const Frame& frame) = 0;
  // The node's ranks are stopped until Continue is sent.
  virtual void on_suspended(int /*node*/) {}
  // The agent tells what its node's ranks use and do, once it was asked to watch them.
  virtual void on_sample(int /*node*/, const SampleMessage& /*sample*/) {}
  virtual void on_done(int node) = 0;
  // An agent answered a question of `hvdrun check` (launcher/wire/check_messages.h), one about stacks
  // (stack_messages.h), or what it was told of a folder (tree_messages.h). An error ends the session.
  virtual Result<void> on_answer(int node, AgentMessage type, const std::string& body);
  // The session is over: it was never opened, it broke, or it was refused for what the agent sent.
  virtual void on_lost(int node, const Error& why) = 0;

 protected:
  SessionSink() = default;
  SessionSink(const SessionSink&) = default;
  SessionSink& operator=(const SessionSink&) = default;
};

class NodeSession final : private StreamSink {
 public:
  NodeSession(EventLoop& loop, const NodePlan& plan, int job_size, SessionSink& sink);
  ~NodeSession() override;
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
  Result<void> on_numbered(const Frame& frame);
  [[nodiscard]] NodeTarget target() const;
  // Refuses a rank that is not on this node: the number is used as an index.
  Result<void> check_rank(int rank) const;
  void beat_later();
  void beat();
  void send_ack();
  // Drops the connection; the session itself may go on.
  void disconnect(const Error& reason);
  void try_again_in(Duration delay);
  void try_again();
  void fail_attempt(const Error& why);
  Result<void> on_resumed(std::uint64_t received);
  void lose(const Error& why);

  EventLoop& loop_;
  const NodePlan plan_;
  const int job_size_;
  SessionSink& sink_;
  Transport* transport_ = nullptr;
  std::unique_ptr<Stream> stream_;
  FrameDecoder decoder_{kAgentFrames};
  std::optional<ReadyMessage> ready_;
  Opened opened_;
  Stage stage_ = Stage::kOpen;
  Duration heartbeat_{};
  TimerId heartbeat_timer_ = 0;
  TimePoint beat_due_;
  TimePoint last_heard_;
  // state that a new connection needs
  Duration reconnect_{};
  std::string token_;
  bool has_started_ = false;
  bool is_resumable_ = false;  // true from Start to Done
  bool is_done_ = false;
  bool is_reached_ = false;
  bool was_resumed_ = false;
  ResendQueue resend_;
  std::uint64_t received_ = 0;
  std::uint64_t acknowledged_ = 0;  // how many of received_ the agent knows of
  // state while there is no connection
  Error why_away_{Code::kLostPeer, ""};
  TimePoint away_since_;
  int attempts_ = 0;
  TimerId attempt_timer_ = 0;
};

}  // namespace hvd::launch
