// JobRunner carries out one job: its parts tell JobState what happens, and do what JobState decides. The runner itself
// makes the parts, gives each action to the part whose it is, and runs the loop.
//
// Thread: the one that calls run(); it becomes the loop's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/logs/log_mux.h"
#include "launcher/membership/generations.h"
#include "launcher/placement/placement.h"
#include "launcher/run/away_nodes.h"
#include "launcher/run/engine_run.h"
#include "launcher/run/job_deadlines.h"
#include "launcher/run/job_ending.h"
#include "launcher/run/job_parts.h"
#include "launcher/run/job_questions.h"
#include "launcher/run/job_reporter.h"
#include "launcher/run/job_start.h"
#include "launcher/run/last_output.h"
#include "launcher/run/moving_hosts.h"
#include "launcher/run/node_reports.h"
#include "launcher/run/rank_changes.h"
#include "launcher/run/stack_rounds.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/node_session.h"
#include "launcher/sessions/relay_tree.h"
#include "launcher/sessions/suspension.h"
#include "launcher/state/job_state.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class JobRunner final {
 public:
  // `agents` is agents_of() the placement, and what the reporter counts as nodes. Both get the nodes that join.
  JobRunner(EventLoop& loop, const JobSpec& spec, Placement& placement, Placement& agents, Transports transports,
            JobReporter& reporter, Log& log, ConsoleFds console = {});
  ~JobRunner();
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Call before run(). `programs` says what the ranks run, where they differ; it is called once, when all nodes have
  // answered.
  void set_programs(ProgramsOf programs) { start_.set_programs(std::move(programs)); }
  // Call before run(). `programs` says what the ranks of a node run that joins later; it is called for each.
  void set_late_programs(LateProgramsOf programs) { start_.set_late_programs(std::move(programs)); }
  // Call before run(). `from` becomes the standard input of the ranks that the spec names. SIGTTIN must be blocked
  // (input_source.h). Without it these ranks read end of file.
  void take_input(Fd from) { start_.take_input(std::move(from)); }
  // Call before run(). The folder is brought to each node before its ranks start, and these start in it. Files that
  // they leave there come home, where the job wants any.
  void bring(Tree tree);
  // Call after run(). What take_input() has got, if no rank was started; else it is not open.
  Fd untaken_input() { return start_.untaken_input(); }
  // Gives the job's picture, of what its nodes and ranks use, to `follower` every few seconds.
  void follow(std::function<void(const JobPicture&)> follower) { watch_.follow(std::move(follower)); }
  // Call before run(). `rewrite` replaces lines of the ranks' output on the console.
  void rewrite_output(LogMux::Rewrite rewrite) { logs_.rewrite_with(std::move(rewrite)); }
  // Call before run(). Hosts of `source` join and leave the running job. `offers` has what is known of them, as of some
  // that have failed; null: nothing.
  void follow_hosts(HostSource& source, const HostOffers* offers = nullptr) { hosts_.follow(source, offers); }
  // Call before run(). Machines that call `calls` join the running job.
  void take_joiners(JoinCalls& calls) { hosts_.take_joiners(calls); }
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
  [[nodiscard]] bool was_told_to_end() const { return ending_.was_told_to_end(); }
  [[nodiscard]] bool has_lost_nodes() const { return state_.has_lost_nodes(); }
  // Prints a line of hvdrun's own, in order with what the ranks printed.
  void say(std::string_view line) { logs_.say(line); }

 private:
  LogMux::Sink log_sink();
  Suspension::Sink suspension_sink();
  Generations::Sink generations_sink();
  Result<void> keep_output();
  // Refuses the job before anything of it has begun.
  int refuse(const Error& why, int code);
  void apply(const JobEvent& event);
  // Has the action carried out by the object whose it is.
  template <typename Action>
  void act(const Action& action);
  void act(const StopNodes& action);
  void act(const Finish& action);

  // constant after construction
  EventLoop& loop_;
  const JobSpec& spec_;
  // loop only
  Placement& placement_;
  Placement& agents_;  // one node for each session
  JobState state_;
  LogMux logs_;
  Generations generations_;
  std::vector<StartMessage> starts_;  // for each node; kept while ranks may be restarted
  RelayTree tree_;
  Suspension suspension_;
  std::vector<std::unique_ptr<NodeSession>> sessions_;
  std::string job_id_;
  JobParts parts_;
  JobWatch watch_;
  NodeReports reports_;
  MovingHosts hosts_;
  EngineRun engine_;
  AwayNodes away_;
  LastOutput output_;
  StackRounds stacks_;
  JobDeadlines deadlines_;
  JobStart start_;
  JobEnding ending_;
  RankChanges changes_;
  JobQuestions questions_;
};

}  // namespace hvd::launch
