// JobStart reaches the nodes of a job and starts the ranks on them: at first all of the job's, later those of a node
// that joins.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/logs/log_mux.h"
#include "launcher/run/engine_run.h"
#include "launcher/run/job_deadlines.h"
#include "launcher/run/job_parts.h"
#include "launcher/run/moving_hosts.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/job_input.h"
#include "launcher/sessions/relay_tree.h"
#include "launcher/transport/transport.h"
#include "launcher/transport/transport_choice.h"
#include "launcher/tree/tree_senders.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

// Transports are the ways to reach nodes; not owned.
struct Transports {
  Transport* local = nullptr;
  Transport* ssh = nullptr;
  Transport* rsh = nullptr;  // null: the job has no rsh command
  // both are null, unless an engine starts the agents, which then connect to us
  Transport* dial_back = nullptr;
  Engine* engine = nullptr;
};

class JobStart {
 public:
  // The other parts of the job that have to do with its start.
  struct Others {
    RelayTree& tree;
    MovingHosts& hosts;
    EngineRun& engine;
    JobDeadlines& deadlines;
    LogMux& logs;
  };

  JobStart(JobParts& job, Transports transports, const Others& others)
      : job_(job), transports_(transports), others_(others) {}

  // See JobRunner.
  void set_programs(ProgramsOf programs) { programs_ = std::move(programs); }
  void set_late_programs(LateProgramsOf programs) { late_programs_ = std::move(programs); }
  void take_input(Fd from) { input_from_ = std::move(from); }
  void bring(Tree tree);

  // Makes what only this job's agents and ranks are to know.
  Result<void> make_secrets();
  // Opens the sessions, which report to `sink`. `on_engine_over` is called when an engine that starts the agents has
  // ended.
  void begin(SessionSink& sink, std::function<void()> on_engine_over);
  void open_session(int node);
  void on_ready(int node, const ReadyMessage& ready);
  void on_lost(int node);
  // The agent answers what it was told of the folder that it is brought.
  Result<void> on_tree_message(int node, AgentMessage type, const std::string& body);
  void act(const StartRanks& action);
  void act(const StartNode& action);
  // The job ends before all nodes have answered, or after.
  void stop();

  // Null unless ranks that take input are running.
  [[nodiscard]] JobInput* input() const { return input_.get(); }
  void end_input() { input_.reset(); }
  // What take_input() has got, if no rank was started; else it is not open.
  Fd untaken_input() { return std::move(input_from_); }

 private:
  [[nodiscard]] Transport& transport_of(TransportKind kind) const;
  void on_start_timeout();
  [[nodiscard]] bool is_bringing();
  void tell_slow_start();
  // The node has all that its ranks need.
  void on_complete(int node);
  void on_tree_failed(int node, const Error& why);
  void tell_copied();
  // The node's ranks start in the folder that was brought to it, if one was.
  void take_place(int node, StartMessage& start) const;
  // Says what the agent must know, and watches the connection to it.
  void welcome(NodeSession& session);
  // Starts the ranks on all nodes.
  void send_starts(std::vector<StartMessage> messages);
  // Ends the job after what goes on now, because a rank cannot be started.
  void fail_later(const StartFailedMessage& failed);
  void begin_input();

  JobParts& job_;
  const Transports transports_;
  const Others others_;
  ProgramsOf programs_;
  LateProgramsOf late_programs_;
  JobSecret secret_{};
  std::string token_;
  Fd input_from_;
  std::unique_ptr<JobInput> input_;
  std::unique_ptr<TreeSenders> trees_;  // null: no folder is brought to the nodes
  std::string way_in_tree_;             // from the folder to the one in which ranks start: "" or "/src"
  std::uint64_t active_before_ = 0;     // the copies' activity, when the start's time was last looked at
  int push_rounds_ = 0;                 // how often the start's time began anew for agents
  TimerId start_timer_ = 0;
  TimerId slow_timer_ = 0;
};

}  // namespace hvd::launch
