// RshStream is one node's stream through a command. It runs the command with `sh` as the remote command, gives that
// shell the line that starts (and if needed fetches) the agent, then carries bytes.
//
// The remote command is `sh`, with the script as its input. This one word means the same to a program that joins its
// words for a remote shell (ssh) and to one that executes them (kubectl exec, ip netns exec). A script as an argument
// would need quotes for the first kind and none for the second.
//
// When the server drops ssh's connection before the login, as it does when it has too many, ssh is started again until
// the time for an answer is over.
//
// The stages are: waiting (for a slot) -> starting (greeting, push) -> greeted (the addresses of its name are awaited)
// -> open -> over.
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "launcher/command/rsh_process.h"
#include "launcher/process/stop_ladder.h"
#include "launcher/transport/agent_push.h"
#include "launcher/transport/handshake_slots.h"
#include "launcher/transport/remote_errors.h"
#include "launcher/transport/resolver.h"
#include "launcher/transport/transport.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace hvd::launch {

struct RshSettings {
  std::string agent_path;                // of load_agent_images()
  std::vector<std::string> environment;  // for the command; its PATH is where the command is looked for
  std::uint64_t open_files = 0;          // likewise (SpawnOptions)
  // This limits the time from starting the command until the shell behind it answers. It is generous: a ~/.bashrc that
  // runs `pyenv init` waits up to 60 s for a lock when many shells start at once.
  Duration answer_time = std::chrono::seconds(120);
  std::size_t max_handshakes = 8;  // commands that are on their way at once
  Resolver::LookUp look_up;        // as Resolver has it
};

// RshShared is what all streams through commands share. Loop and log must outlive it.
struct RshShared {
  RshShared(EventLoop& loop_in, RshSettings settings_in, Log& log_in)
      : loop(loop_in),
        log(log_in),
        settings(std::move(settings_in)),
        slots(loop_in, settings.max_handshakes),
        resolver(loop_in, settings.look_up),
        ladder(loop_in) {}

  // The images are read at the first use and kept, so that every node gets the same bytes.
  const Result<AgentImages>& agent_images() {
    if (!images) {
      images.emplace(load_agent_images(settings.agent_path));
    }
    return *images;
  }

  // constant after construction
  EventLoop& loop;
  Log& log;
  const RshSettings settings;
  // loop only
  HandshakeSlots slots;
  Resolver resolver;
  StopLadder ladder;
  std::optional<Result<AgentImages>> images;
  std::optional<TimePoint> pushed_at;  // when a node last took a part of one
  std::minstd_rand jitter{std::random_device{}()};
};

// RshCommand is the command for one node.
struct RshCommand {
  std::string host;               // as the user wrote it: who the errors are about
  std::vector<std::string> argv;  // `sh` comes after it
  std::string label;              // what the errors call it: "rsh"
  std::string lookup;             // a name whose addresses are a hint at the node's; empty: none
  std::string afterword;          // to errors before the agent runs: ", which is used because ..."
  // Starts the command; when empty, it becomes a process of ours.
  std::function<Result<std::unique_ptr<ByteProcess>>(std::vector<std::string> argv, ByteProcess::Handlers)> start;
};

// The conversation must outlive its own calls into the sink, even when the sink destroys the Stream there. Therefore it
// is a separate, shared object.
class RshConversation : public std::enable_shared_from_this<RshConversation> {
 public:
  RshConversation(std::shared_ptr<RshShared> shared, RshCommand command, StreamSink& sink);
  RshConversation(const RshConversation&) = delete;
  RshConversation& operator=(const RshConversation&) = delete;
  ~RshConversation();

  void start();
  void write(std::string bytes);
  void close_input();
  // The Stream is gone: this ends the process, and the sink hears nothing more.
  void abandon();

 private:
  enum class Stage : std::uint8_t { kWaiting, kStarting, kGreeted, kOpen, kOver };

  void on_named();
  void run();
  Result<void> start_process(const AgentImages& images);
  void on_output(Bytes bytes);
  void on_greeting();
  void on_agent();
  void open_if_named();
  void on_over(const std::optional<ExitStatus>& status, const std::string& how);
  [[nodiscard]] bool may_try_again(const std::optional<ExitStatus>& status) const;
  void try_later();
  void try_again();
  void arm(Duration patience, const std::string& what);
  void release_slot();
  void release();
  void finish(const Error& why);
  [[nodiscard]] std::string last_words() const;
  [[nodiscard]] Error start_error(const std::string& how) const;

  // constant after construction
  const std::shared_ptr<RshShared> shared_;  // shared: streams may outlive their transport
  const RshCommand command_;
  StreamSink& sink_;
  // loop only
  Stage stage_ = Stage::kWaiting;
  std::uint64_t lookup_ = 0;
  TimerId lookup_timer_ = 0;
  bool is_named_ = false;
  HandshakeSlots::Ticket ticket_ = 0;
  TimerId timer_ = 0;
  TimerId slot_timer_ = 0;
  TimerId backoff_ = 0;
  int drops_ = 0;  // tries whose connection the server dropped before the login
  Opened opened_;
  std::unique_ptr<ByteProcess> process_;
  AgentGreeting greeting_;
  bool has_spoken_ = false;  // the command, on its output
  bool is_pushing_ = false;
  RemoteErrors errors_;
  std::string early_;  // written before the agent runs
  bool wants_end_of_input_ = false;
};

using RshStream = ConversationStream<RshConversation>;

}  // namespace hvd::launch
