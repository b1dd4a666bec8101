// AgentCore is the node's side of a session. It feeds AgentState what happens and does what AgentState decides: this
// node's ranks (NodeRanks) are started, supervised and reaped, and when the job is over, or the launcher is gone,
// nothing is left running.
//
// Thread: loop only. It starts all ranks too, so a rank that dies with its parent thread dies with the agent.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_session.h"
#include "launcher/agent/agent_state.h"
#include "launcher/agent/node_answers.h"
#include "launcher/agent/node_ranks.h"
#include "launcher/agent/node_tree.h"
#include "launcher/agent/rank_hub.h"
#include "launcher/agent/relay_hub.h"
#include "launcher/wire/messages.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct AgentOptions {
  std::string scratch_dir;                             // 0700, made and removed by the guardian
  std::vector<std::string> environment;                // the agent's own, "NAME=value"
  Duration lost_grace = std::chrono::seconds(5);       // TERM to KILL, when there is no launcher to ask
  std::string node_name;                               // as the engine calls this node; empty: as it calls itself
  Seat seat;                                           // as the engine that started this agent has it
  Duration signal_patience = std::chrono::seconds(5);  // on_end: how long the launcher is given
  bool has_leash = false;                              // the end of standard input is the end of the agent
  bool joins = false;                                  // it calls to join a job, and leaves it in order at a signal
  int slots = 0;                                       // that it brings then; 0: one for each GPU, or one
};

class AgentCore {
 public:
  // Speaks with the launcher over `in` and `out`.
  static Result<std::unique_ptr<AgentCore>> create(EventLoop& loop, AgentOptions options, AgentConnection connection,
                                                   Log& log);
  ~AgentCore();
  AgentCore(const AgentCore&) = delete;
  AgentCore& operator=(const AgentCore&) = delete;

  // SIGCHLD: reaps whatever has ended.
  void on_child_signal();
  // SIGTERM, SIGINT, SIGHUP. An engine ends all agents by these as soon as one rank of MPI aborts; the launcher, who
  // learns from that rank's agent what has happened, then has the first word, and the ranks theirs.
  void on_end_signal(int signo);
  // SIGUSR1, SIGUSR2: passed on to the ranks, as those that hvdrun gets. Slurm's scancel --signal and sbatch --signal
  // reach the tasks of a step only, and these are the agents.
  void on_user_signal(int signo);
  // The same as on_end_signal() for another reason: whoever started this agent has no use for it any more.
  void on_end(const std::string& why);
  // What the launcher has said last; nothing: the session has broken, or was ended by this agent.
  [[nodiscard]] const std::optional<ByeMessage>& bye() const { return bye_; }
  // Somebody has asked this agent to end.
  [[nodiscard]] bool is_told_to_end() const { return is_told_to_end_; }
  // Why the session is over.
  [[nodiscard]] const std::string& why_over() const { return why_over_; }
  // The launcher or the guardian is gone: stop everything, then end. `why` is for the log.
  void abandon(const std::string& why);

 private:
  AgentCore(EventLoop& loop, AgentOptions options, Log& log);
  Result<void> open_session(AgentConnection connection);
  [[nodiscard]] NodeRanks::Sink ranks_sink();
  void send(AgentMessage type, std::string_view body = {}) { launcher_->send(type, body); }
  Result<void> on_frame(const Frame& frame);
  Result<void> on_welcome(const Frame& frame);
  Result<void> on_start(const Frame& frame);
  Result<void> on_generation(const Frame& frame);
  // Carries out what the state says to the event. NodeRanks does what is about processes.
  void apply(const AgentEvent& event);
  void act(const agent_action::BeginRanks& action);
  void act(const agent_action::ExpectSilence& action);
  void act(const agent_action::Say& action);
  void act(const agent_action::Await& action);
  void act(const agent_action::Forget& action);
  void act(const agent_action::LookForLeft& action);
  void act(const agent_action::LetGo& action);
  void act(const agent_action::TellRanks& action);
  void act(const agent_action::Leave& action);
  void tell_ends();

  // constant after construction
  EventLoop& loop_;
  const AgentOptions options_;
  Log& log_;
  const pid_t guardian_;
  // loop only
  AgentState state_;
  std::unique_ptr<AgentSession> launcher_;
  std::unique_ptr<RankHub> hub_;
  std::unique_ptr<RelayHub> relays_;
  NodeTree tree_;
  NodeAnswers answers_;
  NodeRanks ranks_;  // ended before what they speak to
  Fd reserved_port_;
  std::optional<ByeMessage> bye_;
  std::string why_over_;
  bool is_told_to_end_ = false;
  std::map<int, TimePoint> passed_on_;  // when each of the user's signals was last
  StartMessage start_;                  // what the ranks are about to be started with
  std::array<TimerId, kAgentAlarms> alarms_{};
};

}  // namespace hvd::launch
