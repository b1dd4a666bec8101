// NodeSession: the launcher's conversation with one node's agent: frames in, typed calls out.
//
// Thread: loop only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/agent/messages.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/frame.h"

namespace hvd::launch {

// What sessions report; `node` is the index in the placement. Nothing comes from inside a call to the session.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void on_ready(int node, const ReadyMessage& ready) = 0;
  virtual void on_progress(int node, const std::string& what) = 0;
  virtual void on_notice(int node, const std::string& what) = 0;
  virtual void on_started(int rank, int pid) = 0;
  virtual void on_start_failed(const StartFailedMessage& failed) = 0;
  virtual void on_output(int node, const OutputMessage& output) = 0;
  virtual void on_output_end(int rank, StreamId stream) = 0;
  virtual void on_exited(const ExitedMessage& exited) = 0;
  virtual void on_exchange(const ExchangeMessage& exchange) = 0;
  virtual void on_problem(int node, const std::string& text) = 0;
  virtual void on_done(int node) = 0;
  // The session is over: never opened, broken, or refused for what it sent.
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
  void send(AgentMessage type, std::string_view body = {});
  // Heartbeats go out from now on, and silence of six intervals is a loss.
  void start_heartbeat(Duration interval);
  // The agent may end.
  void close_input();
  [[nodiscard]] bool is_open() const { return stream_ != nullptr && !is_over_; }
  [[nodiscard]] const NodePlan& plan() const { return plan_; }
  // How the node was reached; known once the agent is ready.
  [[nodiscard]] const Opened& opened() const { return opened_; }
  [[nodiscard]] const std::optional<ReadyMessage>& ready() const { return ready_; }

 private:
  void on_open(const Opened& opened) override;
  void on_progress(const std::string& what) override;
  void on_notice(const std::string& what) override;
  void on_bytes(Bytes bytes) override;
  void on_closed(const Error& why) override;
  Result<void> on_frame(const Frame& frame);
  // A rank of another node, or none, is refused: it would be an index.
  Result<void> check_rank(int rank) const;
  void beat();
  void lose(const Error& why);

  EventLoop& loop_;
  const NodePlan plan_;
  const int job_size_;
  SessionSink& sink_;
  std::unique_ptr<Stream> stream_;
  FrameDecoder decoder_{kAgentFrames};
  std::optional<ReadyMessage> ready_;
  Opened opened_;
  Duration heartbeat_{};
  TimerId heartbeat_timer_ = 0;
  TimePoint last_heard_;
  bool is_over_ = false;
};

}  // namespace hvd::launch
