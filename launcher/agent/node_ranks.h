// NodeRanks holds the ranks of this node as processes: it starts them, passes their output on as far as there is
// credit, feeds those that read standard input, and knows what they have left behind. When a rank is to be stopped or
// started again is decided elsewhere (AgentState).
//
// Thread: loop only; a rank that dies with its parent thread dies with the agent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/agent/agent_state.h"
#include "launcher/agent/death_order.h"
#include "launcher/agent/input_feed.h"
#include "launcher/agent/rank_process.h"
#include "launcher/post_mortem/oom_watch.h"
#include "launcher/wire/messages.h"
#include "runtime/base/clock.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class NodeRanks {
 public:
  struct Sink {
    std::function<void(AgentMessage, std::string_view body)> send;         // to the launcher
    std::function<void(AgentMessage, std::string_view frame)> send_frame;  // the same of a whole frame
    std::function<void(int rank)> on_began;
    // A rank has ended and nothing more comes from its pipes. Called from the loop, never from inside a call.
    std::function<void()> on_finished;
    // Says whether this child of the agent belongs to another part of it, and was not left behind by a rank.
    std::function<bool(pid_t)> is_of_others;
    // Says that there is no such child once the ranks have ended.
    std::function<bool()> are_others_idle;
  };

  struct Node {
    std::string host_name;                 // as the node calls itself
    std::string scratch_dir;               // where files of the job are written
    std::vector<std::string> environment;  // the agent's own
  };

  NodeRanks(EventLoop& loop, Node node, Sink sink);
  ~NodeRanks();
  NodeRanks(const NodeRanks&) = delete;
  NodeRanks& operator=(const NodeRanks&) = delete;

  // Starts all of them, or says why one could not be started; the launcher then stops those that run.
  void start(const StartMessage& start);
  // Starts one again as soon as nothing of it is left, unless ForgetRestarts comes before.
  void restart(StartMessage start);
  // Sends the signal to the group of each.
  void signal(int signo) const;
  // These carry out what AgentState decides about the processes.
  void act(const agent_action::ForgetRestarts& action);
  void act(const agent_action::SignalRanks& action) const { signal(action.signo); }
  void act(const agent_action::StopRanks& action);
  void act(const agent_action::SignalLeft& action) const;
  void act(const agent_action::EndDrains& action);
  // Ends one rank by the signal. One that waits to be started again is not, and that is told.
  void end_rank(int number, int signo);
  // Returns the rank whose process this is, or was; nullopt: none.
  [[nodiscard]] std::optional<int> rank_of(pid_t pid) const;
  // Returns number and process of each rank that has not ended.
  [[nodiscard]] std::vector<std::pair<int, pid_t>> running() const;
  // Reaps all children of this process that have ended. Ranks come first, in the order in which they have ended.
  void reap(const std::function<void(pid_t pid, const ExitStatus& status)>& tell) { deaths_.reap(tell); }
  // The process of a rank was reaped. `is_stopping`: what kills ranks from now on is this agent.
  void on_exited(pid_t pid, ExitStatus status, bool is_stopping);
  // Calls `tell` for each that has ended and of which nothing more will come, and for each that has ended after it was
  // told to.
  void each_ended(const std::function<void(const RankProcess&)>& tell) const;
  // Returns what ranks have left behind: the children of the agent, but for those of its other parts.
  [[nodiscard]] std::vector<pid_t> left_behind() const;
  // Says whether ranks that have ended have left nothing behind.
  [[nodiscard]] bool is_nothing_left() const;
  // Until then what they have left has time to end: the last time of all that were told to end.
  [[nodiscard]] TimePoint grace_ends() const;
  // The launcher takes so much more of their output.
  void on_credit(std::uint64_t bytes);
  // Nobody takes their output any more: it is read and dropped, since a full pipe would keep a rank from ending.
  void drain();
  [[nodiscard]] InputFeed& input() { return input_; }

 private:
  Result<void> write_files(const StartMessage& start) const;
  Result<void> allow_files_for(const StartMessage& start);
  Result<void> start_rank(const StartMessage& start, const StartMessage::Rank& rank);
  // Starts those again whose last process is finished; the others follow when theirs is.
  void start_again();
  // Ends what a rank has left that has ended: its restarted self would find memory and devices taken.
  void end_orphans_of(const RankProcess& process) const;
  // True when it was told to end with a rank.
  [[nodiscard]] bool was_told(pid_t left) const;
  void take_output(int rank, StreamId stream, std::string_view bytes);
  [[nodiscard]] InputFeed::Sink input_sink();
  // Returns what the node knows of the end of a rank, and notes in `status` whether the kernel killed it.
  ExitDetail explain(pid_t pid, ExitStatus& status, bool is_stopping);

  // constant after construction
  EventLoop& loop_;
  const Node node_;
  const Sink sink_;
  // loop only
  InputFeed input_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<StartMessage> again_;  // of ranks that are to be started again, each of one
  std::uint64_t credit_ = 0;
  bool is_drained_ = false;
  OomWatch oom_watch_;
  DeathOrder deaths_;
  bool tells_order_ = false;            // there are descriptors enough
  std::string cwd_;                     // of the ranks
  Fd mark_;                             // its name tells how many ranks the job has
  std::uint64_t ranks_open_files_ = 0;  // their limit, as this process had it at first
};

// Returns the environment of a rank: the agent's own, changed as `start` says. What that only proposes gives way to
// what the node has: in `own`, or by a name in `settled`. PWD is the folder in which the rank starts, as a shell would
// have it. Pure.
std::vector<std::string> environment_of(const std::vector<std::string>& own, const std::vector<std::string>& settled,
                                        const StartMessage& start, const StartMessage::Rank& rank);

}  // namespace hvd::launch
