// AgentSession is the agent's end of its session with the launcher, over whichever connection exists at the time. Once
// the ranks run, the session survives a connection that breaks or falls silent: what is said meanwhile is kept
// (ResendQueue), and another agent may bring a new connection (messages.h). Only then is the launcher gone for good.
//
// Thread: loop only; the sink is called from the loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/wire/messages.h"
#include "launcher/wire/resend_queue.h"
#include "runtime/base/log.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// AgentConnection is what leads to the launcher.
struct AgentConnection {
  Fd in;
  Fd out;                              // not open: `in` is a socket
  std::unique_ptr<ByteFilter> filter;  // null: it needs no protection of its own
};

class AgentSession {
 public:
  struct Sink {
    std::function<Result<void>(const Frame&)> on_frame;
    // Takes the Relay... messages of a launcher that was accepted.
    std::function<Result<void>(const Frame&)> on_relay;
    // The connection has ended, and with it what belongs to it; the session may not have.
    std::function<void()> on_disconnected;
    // The launcher has said its last word; on_over follows.
    std::function<void(const ByeMessage& bye)> on_bye;
    // The launcher is gone for good. Called once.
    std::function<void(const std::string& why)> on_over;
    // Says whether there is something for a launcher that comes back.
    std::function<bool()> is_worth_waiting;
  };

  // New connections are brought to `resume_path`.
  static Result<std::unique_ptr<AgentSession>> create(EventLoop& loop, AgentConnection connection,
                                                      const std::string& resume_path, Sink sink, Log& log);
  ~AgentSession();
  AgentSession(const AgentSession&) = delete;
  AgentSession& operator=(const AgentSession&) = delete;

  void on_welcome(const WelcomeMessage& welcome);
  void send(AgentMessage type, std::string_view body = {}) { send_frame(type, agent_frame(type, body)); }
  void send_frame(AgentMessage type, std::string_view frame);
  // Sets whether the launcher has said that it will be silent. Its silence is then no sign that it is gone; the end of
  // its connection still is.
  void expect_silence(bool is_expected) { is_silence_expected_ = is_expected; }

 private:
  // Visitor is a connection to resume_path that has not said yet what it brings.
  struct Visitor {
    Fd fd;
    WatchId watch = 0;
  };

  AgentSession(EventLoop& loop, Sink sink, Log& log);
  Result<void> listen(const std::string& resume_path);
  Result<std::unique_ptr<ByteChannel>> make_channel(AgentConnection connection);
  void on_bytes(Bytes bytes);
  Result<void> on_frame(const Frame& frame);
  void on_closed();
  void over(const std::string& why);
  void watch_launcher();
  void discount_own_stop();
  [[nodiscard]] TimePoint patience_ends() const;
  void send_ack();
  // The new agent calls this: it gives its connection to the agent that has the ranks.
  Result<void> hand_over(const ResumeMessage& resume);
  // The agent that has the ranks calls this, with a new connection to resume_path.
  void greet_visitor(Fd fd);
  void hear_visitor(int number);
  Visitor take_visitor(int number);
  Result<void> adopt(Visitor visitor);
  Result<void> resume(Fd in, Fd out, const ResumeMessage& resume);

  EventLoop& loop_;
  const Sink sink_;
  Log& log_;
  std::unique_ptr<ByteChannel> channel_;  // null: there is no connection
  Fd holder_;                             // its other end: the agent that brought the connection, and ends with it
  WatchId holder_watch_ = 0;
  FrameDecoder decoder_{kAgentFrames};
  ResendQueue resend_;
  std::uint64_t received_ = 0;
  std::uint64_t acknowledged_ = 0;  // of received_, to the launcher
  bool is_over_ = false;
  bool is_silence_expected_ = false;
  // as Welcome said
  std::string token_;
  Duration heartbeat_{};
  Duration reconnect_{};
  // the launcher's signs of life
  TimePoint last_heard_;
  TimePoint closed_at_;
  TimerId patience_timer_ = 0;
  TimePoint patience_due_;  // when it is to fire
  // who wants in
  Fd listener_;
  std::unique_ptr<AcceptWatch> accepting_;
  std::map<int, Visitor> visitors_;
  int next_visitor_ = 0;
};

}  // namespace hvd::launch
