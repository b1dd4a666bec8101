// AgentCore: the node's side of a session. It starts, supervises and reaps this node's ranks, relays their output,
// exits and rendezvous, and when the job is over, or the launcher is gone, leaves nothing running.
//
// Thread: loop only; the agent has no other thread, so a rank that dies with its parent thread dies with the agent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_session.h"
#include "launcher/agent/input_feed.h"
#include "launcher/agent/rank_hub.h"
#include "launcher/agent/rank_process.h"
#include "launcher/agent/relay_hub.h"
#include "launcher/process/oom_watch.h"
#include "launcher/survey/node_check.h"
#include "launcher/wire/messages.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct AgentOptions {
  std::string scratch_dir;                        // 0700, made and removed by the guardian
  std::vector<std::string> environment;           // the agent's own, "NAME=value"
  Duration lost_grace = std::chrono::seconds(5);  // TERM to KILL, when there is no launcher to ask
  std::string node_name;                          // as the engine calls this node; empty: as it calls itself
  Seat seat;                                      // as the engine that started this agent has it
  Duration signal_patience{};                     // on_end: how long the launcher is given
  bool has_leash = false;                         // the end of standard input is the end of the agent
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
  // The same for another reason: whoever started this agent has no use for it any more.
  void on_end(const std::string& why);
  // The launcher or the guardian is gone: stop everything, then end. `why` is for the log.
  void abandon(const std::string& why);

 private:
  AgentCore(EventLoop& loop, AgentOptions options, Log& log);
  Result<void> open_session(AgentConnection connection);
  void send(AgentMessage type, std::string_view body = {}) { launcher_->send(type, body); }
  Result<void> on_frame(const Frame& frame);
  Result<void> on_welcome(const Frame& frame);
  Result<void> on_start(const Frame& frame);
  Result<void> write_hostfile(const std::string& text) const;
  [[nodiscard]] Result<void> write_file(const std::string& name, const std::string& text) const;
  Result<void> allow_files_for(const StartMessage& start);
  Result<void> start_rank(const StartMessage& start, const StartMessage::Rank& rank);
  Result<void> on_restart(const Frame& frame);
  // Those whose last process is finished; the others when it is.
  void start_again();
  // Ends what a rank has left that ended: its restarted self would find memory and devices taken.
  void end_orphans_of(const RankProcess& process);
  [[nodiscard]] std::vector<std::string> environment_of(const StartMessage& start,
                                                        const StartMessage::Rank& rank) const;
  [[nodiscard]] std::unique_ptr<NodeCheck> make_check(const JobSecret& secret);
  void take_output(int rank, StreamId stream, std::string_view bytes);
  void on_credit(std::uint64_t bytes);
  [[nodiscard]] InputFeed::Sink input_sink();
  // What the node knows of the end of a rank, and whether the kernel killed it.
  ExitDetail explain(pid_t pid, ExitStatus& status);
  // The stop ladder. `spared`: ranks that get none of its signals but SIGKILL.
  void climb(int signo, Duration grace, const std::vector<std::int32_t>& spared = {});
  Result<void> on_end_rank(const Frame& frame);
  // Stops the ranks where they are, until let_continue(). A rank that is stopped can be told to end all the same.
  void suspend();
  void let_continue();
  // No rank runs, and none will.
  [[nodiscard]] bool all_finished() const;
  void begin_sweep_if_finished();
  // What the ranks have left: children, but for the commands that lead to other nodes.
  [[nodiscard]] std::vector<pid_t> left_behind() const;
  [[nodiscard]] bool is_nothing_left() const;
  void sweep(int signo);
  void finish();
  void leave();

  EventLoop& loop_;
  const AgentOptions options_;
  Log& log_;
  const pid_t guardian_;
  std::unique_ptr<AgentSession> launcher_;
  std::unique_ptr<RankHub> hub_;
  std::unique_ptr<RelayHub> relays_;
  InputFeed input_;
  std::unique_ptr<NodeCheck> check_;  // from Welcome on
  Fd reserved_port_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::uint64_t credit_ = 0;
  OomWatch oom_watch_;
  std::string cwd_;                     // of the ranks
  std::vector<StartMessage> again_;     // of ranks that are to be started anew, each of one
  std::uint32_t epoch_ = 0;             // how often ranks were restarted, on any node
  std::uint64_t ranks_open_files_ = 0;  // their limit, as this process had it at first
  bool may_restart_ = false;
  bool has_started_ = false;
  bool is_stopping_ = false;
  bool is_suspended_ = false;
  bool is_sweeping_ = false;
  bool is_done_ = false;
  bool is_abandoned_ = false;
  bool is_leaving_ = false;  // done and abandoned: only relayed commands are waited for
  TimerId ladder_timer_ = 0;
  TimerId sweep_timer_ = 0;
  TimerId signal_timer_ = 0;
  TimePoint sweep_began_;
};

}  // namespace hvd::launch
