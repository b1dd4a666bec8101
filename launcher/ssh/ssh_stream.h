// SshStream is one node's stream over ssh. It reaches the node, starts (or pushes) the agent, then carries bytes.
//
// The stages are: reaching -> opening (channel, remote command) -> starting (greeting, push) -> open -> ending -> over.
// Thread: loop only.
#pragma once

#include <memory>
#include <string>

#include "launcher/ssh/ssh_input.h"
#include "launcher/ssh/ssh_reach.h"
#include "launcher/ssh/ssh_session.h"
#include "launcher/ssh/ssh_shared.h"
#include "launcher/transport/agent_push.h"
#include "launcher/transport/remote_errors.h"
#include "launcher/transport/transport.h"

namespace hvd::launch {

// The conversation must outlive its own calls into the sink, even when the sink destroys the Stream there. Therefore it
// is a separate, shared object.
class SshConversation : public std::enable_shared_from_this<SshConversation> {
 public:
  SshConversation(std::shared_ptr<SshShared> shared, const NodeTarget& target, StreamSink& sink);
  SshConversation(const SshConversation&) = delete;
  SshConversation& operator=(const SshConversation&) = delete;
  ~SshConversation();

  void start();
  void write(std::string bytes);
  void close_input();
  // The Stream is gone: this closes everything, and the sink hears nothing more.
  void abandon();

 private:
  enum class Stage : std::uint8_t { kReaching, kOpening, kStarting, kOpen, kEnding, kOver };

  void on_reached(Result<Reached> reached);
  // Opens the node by the user's own ssh, and from then on only forwards.
  void switch_over(const SshReach& reach);
  // Continues as far as possible without waiting, then tells the loop what to wait for.
  void drive();
  void drive_opening();
  void drive_bytes();
  void drive_ending();
  void nudge_if_stuck();
  // Returns how many bytes were taken.
  std::size_t flush();
  // Reads bytes from one source until there are none or the budget is used up.
  std::size_t read_all(SshSession::Source source, std::size_t budget);
  void on_output(Bytes bytes);
  void on_greeting();
  void on_agent();
  void begin_ending();
  void drive_later();
  void update_watch();
  void expect_progress();
  void on_no_progress(Duration patience);
  // Begins to wait for the end of what the node says, with a deadline.
  void expect_end();
  [[nodiscard]] Error start_error(const std::string& how) const;
  [[nodiscard]] Error end_error() const;
  void finish(const Error& why);
  void release();

  // constant after construction
  const std::shared_ptr<SshShared> shared_;  // shared: streams may outlive their transport
  const NodeTarget target_;
  StreamSink& sink_;
  // loop only
  Stage stage_ = Stage::kReaching;
  std::unique_ptr<SshReach> reach_;
  std::unique_ptr<Stream> system_ssh_;
  Opened opened_;
  std::unique_ptr<SshSession> session_;
  WatchId watch_ = 0;
  TimerId timer_ = 0;
  TimePoint began_;
  TimerId nudge_ = 0;
  bool is_scheduled_ = false;
  bool has_channel_ = false;
  std::string command_;
  AgentGreeting greeting_;
  RemoteErrors errors_;
  SshInput input_;
  bool is_agent_up_ = false;
};

using SshStream = ConversationStream<SshConversation>;

}  // namespace hvd::launch
