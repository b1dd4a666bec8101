// JobState: what a job does next, as a pure function of what happened: no I/O, no clock. JobRunner feeds it events and
// carries out its actions.
//
// Phases: opening (agents are being reached) -> running -> stopping (something ended the job) -> done. The first cause
// wins: what fails after it, fails because of it. Among ranks the first is the one that failed first, whichever ends
// first (FailureOrder); while that is not certain, the decision waits, for the time of grace at most.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/placement/placement.h"
#include "launcher/process/exit_status.h"
#include "launcher/run/failure_order.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// ---- events ----
struct NodeReady {
  int node = 0;
};
struct NodeLost {  // could not be opened, or its session broke
  int node = 0;
  Error why;
};
struct NodeEnding {  // its agent stops its ranks, and not because we asked
  int node = 0;
  std::string why;
};
struct RankStarted {
  int rank = 0;
  int pid = 0;
};
struct RankJoined {  // its runtime is about to meet the others
  int rank = 0;
};
struct RankStartFailed {
  int rank = 0;
  Error why;
};
struct RankFailing {  // it tells so itself, and may live on for a while
  int rank = 0;
  FailureNews news;
  TimePoint at{};
};
struct RankComplained {  // its standard error tells of a failure, and it may live on for ever
  int rank = 0;
  bool has_lost_a_peer = false;  // it says so of the failure that it told of last
  TimePoint at{};
};
struct RankExited {
  int rank = 0;
  ExitStatus status;
  ExitDetail detail{};
  TimePoint at{};
};
struct CauseDue {};   // AwaitCause: who has not failed by now, has not failed first
struct RankOverdue {  // AwaitEnd: it ought to have ended by now
  int rank = 0;
  int pid = 0;
};
struct NodeDone {  // everything on it is gone
  int node = 0;
};
struct Interrupted {
  int signo = 0;
};
struct OutputFailed {
  Error why;
};
struct FilesFailed {  // what the ranks print is on the console, but no longer all in files
  Error why;
};
struct EngineEnded {  // before its agents had
  Error why;
};
struct Misplaced {  // an engine has put a rank elsewhere than planned
  Error why;
};
struct StartTimedOut {};
struct TimedOut {};      // the job has run as long as it may
struct StopTimedOut {};  // a node did not report its end in time
using JobEvent = std::variant<NodeReady, NodeLost, NodeEnding, RankStarted, RankJoined, RankStartFailed, RankFailing,
                              RankComplained, RankExited, CauseDue, RankOverdue, NodeDone, Interrupted, OutputFailed,
                              FilesFailed, EngineEnded, Misplaced, StartTimedOut, TimedOut, StopTimedOut>;

// ---- actions ----
struct StartRanks {};
struct RestartRank {
  int rank = 0;
  int number = 0;     // of this restart, from 1
  std::string cause;  // how it ended
};
struct StopNodes {
  int signo = 0;              // SIGKILL: at once
  std::vector<int> spared{};  // ranks that are ending by themselves, and get SIGKILL when the time of grace is over
};
struct TellRanks {  // the job is over, to every runtime
  std::string cause;
};
struct ReportCause {};    // the first cause is known: say it now, before the noise that follows
struct ReportFailing {};  // the same while the rank has not ended; ReportCause follows when it has
struct Finish {};         // leave the sessions and end
struct AwaitCause {};     // CauseDue after the time of grace
struct AwaitEnd {         // RankOverdue after the time of grace
  int rank = 0;
  int pid = 0;
};
struct EndRank {  // at once
  int rank = 0;
};
using JobAction = std::variant<StartRanks, RestartRank, StopNodes, TellRanks, ReportCause, Finish, ReportFailing,
                               AwaitCause, AwaitEnd, EndRank>;

enum class JobPhase : std::uint8_t { kOpening, kRunning, kStopping, kDone };

// Why a job did not succeed.
struct Cause {
  std::vector<std::string> lines;  // one per failed host or rank: who, what, what to try
  int exit_code = 0;
  int rank = -1;       // whose last lines belong to the report; -1: none
  std::string hint{};  // what may be done about it while the job ends
};

struct RankRecord {
  enum class State : std::uint8_t { kPending, kRunning, kEnded, kLost };
  State state = State::kPending;
  int pid = 0;
  bool has_joined = false;    // since its last start
  bool has_followed = false;  // it failed before it was stopped, because of the rank that is the cause
  ExitStatus status;
  ExitDetail detail{};
};

class JobState {
 public:
  // `servers`: ranks that serve the others; the job is over when these others have ended. `restart_limit`: how many
  // times a rank that fails is started anew, of all ranks together. `grace`: how long a rank that is failing has to
  // end.
  explicit JobState(const Placement& placement, const std::vector<int>& servers = {}, int restart_limit = 0,
                    Duration grace = std::chrono::seconds(10));

  std::vector<JobAction> on(const JobEvent& event);

  [[nodiscard]] JobPhase phase() const { return phase_; }
  [[nodiscard]] const std::optional<Cause>& cause() const { return cause_; }
  [[nodiscard]] const std::vector<RankRecord>& ranks() const { return ranks_; }
  // 0, or the cause's; of a job that went well, but whose files could not all be written, kOutputFailed.
  [[nodiscard]] int exit_code() const;
  [[nodiscard]] bool has_kept_all() const { return has_kept_all_; }
  // ReportFailing came before ReportCause.
  [[nodiscard]] bool was_told_as_failing() const { return was_told_as_failing_; }
  // Nothing more is to come from this node.
  [[nodiscard]] bool is_over(int node) const {
    const NodeState state = nodes_[static_cast<std::size_t>(node)];
    return phase_ == JobPhase::kDone || state == NodeState::kDone || state == NodeState::kLost;
  }
  // Nodes that have not answered yet, for messages.
  [[nodiscard]] std::vector<std::string> silent_hosts() const;

 private:
  enum class NodeState : std::uint8_t { kOpening, kReady, kDone, kLost };
  using Actions = std::vector<JobAction>;

  Actions handle(const NodeReady& event);
  Actions handle(const NodeLost& event);
  Actions handle(const NodeEnding& event);
  Actions handle(const RankStarted& event);
  Actions handle(const RankJoined& event);
  Actions handle(const RankStartFailed& event);
  Actions handle(const RankFailing& event);
  Actions handle(const RankComplained& event);
  Actions handle(const RankExited& event);
  Actions handle(const CauseDue& event);
  Actions handle(const RankOverdue& event);
  Actions handle(const NodeDone& event);
  Actions handle(const Interrupted& event);
  Actions handle(const OutputFailed& event);
  Actions handle(const FilesFailed& event);
  Actions handle(const EngineEnded& event);
  Actions handle(const Misplaced& event);
  Actions handle(const StartTimedOut& event);
  Actions handle(const TimedOut& event);
  Actions handle(const StopTimedOut& event);
  // The last of the output is written when all ranks have ended, and may fail as the rest.
  void note_late(const JobEvent& event);
  static Cause cause_of(const OutputFailed& event);
  // Records the cause if it is the first, and stops everything.
  Actions stop_for(Cause cause, int signo);
  Actions look_for_cause(bool is_late);
  // While it is looked for, also what does not fail the job may decide.
  Actions look_again() { return is_awaiting_cause_ ? look_for_cause(false) : Actions(); }
  // This rank has failed first.
  Actions stop_for_rank(int rank);
  // The rank that was the cause has ended, after it was reported as failing.
  Actions settle_cause(const RankExited& event);
  // Of a rank that failed because of another one, and that one is not to blame either.
  [[nodiscard]] std::string describe_leader(int rank) const;
  Actions let_servers_go();
  // Whether the others can go on with it, once it is started anew.
  [[nodiscard]] bool is_worth_restarting(const RankRecord& failed) const;
  Actions finish_if_over();
  Actions start_if_open();
  [[nodiscard]] bool every_node(NodeState a, NodeState b) const;
  [[nodiscard]] std::string describe(int rank) const;
  [[nodiscard]] std::string describe_cause(int rank) const;

  const Placement& placement_;
  JobPhase phase_ = JobPhase::kOpening;
  std::vector<NodeState> nodes_;
  std::vector<RankRecord> ranks_;
  std::vector<bool> is_server_;
  bool is_letting_go_ = false;                   // the others have ended, and the servers are being
  std::vector<std::pair<int, Error>> unopened_;  // nodes that could not be reached, in order of arrival
  FailureOrder order_;
  std::optional<Cause> cause_;
  bool is_awaiting_cause_ = false;
  bool is_awaiting_end_ = false;  // of the rank that is the cause
  bool was_told_as_failing_ = false;
  int interrupts_ = 0;
  int restarts_ = 0;
  const int restart_limit_;
  bool has_kept_all_ = true;
};

}  // namespace hvd::launch
