// JobRunner carries out one job: it opens sessions, feeds JobState what happens and does what JobState decides.
//
// Thread: the one that calls run(); it becomes the loop's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/job/job_spec.h"
#include "launcher/logs/log_mux.h"
#include "launcher/membership/generations.h"
#include "launcher/placement/placement.h"
#include "launcher/run/away_nodes.h"
#include "launcher/run/engine_run.h"
#include "launcher/run/job_parts.h"
#include "launcher/run/job_reporter.h"
#include "launcher/run/last_output.h"
#include "launcher/run/moving_hosts.h"
#include "launcher/run/start_plan.h"
#include "launcher/run/suspension.h"
#include "launcher/sessions/job_input.h"
#include "launcher/sessions/node_session.h"
#include "launcher/sessions/relay_tree.h"
#include "launcher/state/job_state.h"
#include "launcher/transport/transport.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

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

class JobRunner final : private SessionSink {
 public:
  JobRunner(EventLoop& loop, const JobSpec& spec, const Placement& placement, Transports transports,
            JobReporter& reporter, Log& log, ConsoleFds console = {});
  ~JobRunner() override;
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Call before run(). `programs` says what the ranks run, where they differ; it is called once, when all nodes have
  // answered.
  void set_programs(ProgramsOf programs) { programs_ = std::move(programs); }
  // Call before run(). `programs` says what the ranks of a node run that joins later; it is called for each.
  void set_late_programs(LateProgramsOf programs) { late_programs_ = std::move(programs); }
  // Call before run(). `from` becomes the standard input of the ranks that the spec names. SIGTTIN must be blocked
  // (input_source.h). Without it these ranks read end of file.
  void take_input(Fd from) { input_from_ = std::move(from); }
  // Call before run(). `rewrite` replaces lines of the ranks' output on the console.
  void rewrite_output(LogMux::Rewrite rewrite) { logs_.rewrite_with(std::move(rewrite)); }
  // Call before run(). Hosts of `source` join and leave the running job. `placement` is the one that the runner was
  // made with, and gets the nodes that join; with it the reporter must be made.
  void follow_hosts(Placement& placement, HostSource& source) { hosts_.follow(placement, source); }
  // Call before run(). Machines that call `calls` join the running job; the placement is as for follow_hosts().
  void take_joiners(Placement& placement, JoinCalls& calls) { hosts_.take_joiners(placement, calls); }
  // Runs the job to its end and returns hvdrun's exit code. An error is a fault of this machine (no epoll, no random
  // numbers), not of the job.
  Result<int> run();
  // SIGINT, SIGTERM and SIGHUP stop the job (the second one at once). SIGUSR1 and SIGUSR2 are passed on to the ranks;
  // SIGUSR1 stops a job that Slurm is to begin anew.
  // SIGTSTP suspends the job and this process (suspension.h). After SIGCONT standard input may be ours again.
  void on_signal(int signo);
  // The engine that started the agents has ended them, or has gone. The job is stopped, with `why` as its cause if it
  // has none yet.
  void on_engine_gone(const Error& why) { apply(EngineEnded{why}); }
  // True when the job was ended because its time is over, by what SIGTERM or SIGUSR1 told hvdrun or an agent.
  [[nodiscard]] bool was_told_to_end() const { return was_told_to_end_; }
  // Prints a line of hvdrun's own, in order with what the ranks printed.
  void say(std::string_view line) { logs_.say(line); }

 private:
  void on_ready(int node, const ReadyMessage& ready) override;
  void on_progress(int node, const std::string& what) override;
  void on_notice(int node, const std::string& what) override;
  void on_away(int node, const Error& why, Duration patience) override;
  void on_back(int node, Duration away) override;
  void on_started(int rank, int pid) override;
  void on_joined(const JoinedMessage& joined) override;
  void on_start_failed(const StartFailedMessage& failed) override;
  void on_output(int node, const OutputMessage& output) override;
  void on_output_end(int rank, StreamId stream) override;
  void on_input_credit(int node, std::uint64_t bytes) override;
  void on_input_over(int node) override;
  void on_failing(const FailingMessage& failing) override;
  void on_exited(const ExitedMessage& exited) override;
  void on_exchange(const ExchangeMessage& exchange) override;
  void on_problem(int node, const std::string& text) override;
  void on_ending(int node, const std::string& why) override;
  void on_leaving(int node, const std::string& why) override;
  Result<void> on_relay(int node, const Frame& frame) override;
  void on_suspended(int node) override;
  void on_done(int node) override;
  void on_lost(int node, const Error& why) override;

  LogMux::Sink log_sink();
  Suspension::Sink suspension_sink();
  Generations::Sink generations_sink();
  void arm_timeout();
  Result<void> keep_output();
  void open_sessions();
  void open_session(int node);
  void on_start_timeout();
  [[nodiscard]] Transport& transport_of(TransportKind kind) const;
  void apply(const JobEvent& event);
  // The same for an event that says that the job's time is over.
  void apply_notice(const JobEvent& event);
  void act(const StartRanks& action);
  void act(const RestartRank& action);
  void act(const GoOnWithout& action);
  void act(const StartNode& action);
  void act(const AwaitHosts& action);
  void act(const EndNode& action);
  void act(const StopNodes& action);
  void act(const TellRanks& action);
  void act(const ReportCause& action);
  void act(const ReportFailing& action);
  void act(const AwaitCause& action);
  void act(const AwaitEnd& action);
  void act(const EndRank& action);
  void act(const Finish& action);
  void end_if_closed();
  void begin_input();
  void broadcast(AgentMessage type, std::string_view body);
  void name_lost_touch();
  void say_all(const Lines& lines);
  void show_status();
  void tell_slow_start();

  // constant after construction
  EventLoop& loop_;
  const JobSpec& spec_;
  const Placement& placement_;
  const Transports transports_;
  JobReporter& reporter_;
  Log& log_;
  ProgramsOf programs_;
  LateProgramsOf late_programs_;
  // loop only
  Placement agents_;  // one node for each session
  JobState state_;
  LogMux logs_;
  Generations generations_;
  std::vector<StartMessage> starts_;  // for each node; kept while ranks may be restarted
  Fd input_from_;
  std::unique_ptr<JobInput> input_;  // null unless ranks that take input are running
  RelayTree tree_;
  Suspension suspension_;
  std::vector<std::unique_ptr<NodeSession>> sessions_;
  JobSecret secret_{};
  std::string token_;
  std::string job_id_;
  const JobParts parts_;
  MovingHosts hosts_;
  EngineRun engine_;
  AwayNodes away_;
  LastOutput output_;
  TimePoint began_;
  TimerId start_timer_ = 0;
  TimerId slow_timer_ = 0;
  TimerId timeout_timer_ = 0;
  TimePoint timeout_due_;
  TimerId stop_timer_ = 0;
  TimerId cause_timer_ = 0;
  TimerId hosts_timer_ = 0;            // limits the wait for hosts while too few ranks are left
  std::map<int, TimerId> end_timers_;  // by rank
  TimerId end_timer_ = 0;
  bool was_told_to_end_ = false;
  bool has_started_ = false;  // agents were asked to start their ranks
  bool is_finishing_ = false;
};

}  // namespace hvd::launch
