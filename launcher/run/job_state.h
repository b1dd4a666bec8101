// JobState decides what a job does next, as a pure function of its events: no I/O, no clock. JobRunner feeds it events
// and carries out its actions.
//
// Phases: opening (agents are being reached) -> running -> stopping (something ended the job) -> done. The first cause
// wins, because what fails after it fails as its consequence. Among ranks the first is the one that failed first, even
// if another one ends earlier (FailureOrder). While that is not certain the decision waits, for the grace period at
// most.
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
struct NodeLost {  // its agent could not be reached, or its session broke
  int node = 0;
  Error why;
};
struct NodeEnding {  // its agent stops its ranks, although we did not ask for it
  int node = 0;
  std::string why;
  bool is_last = false;  // the agents of all others have said before that they end, or that their ranks are to leave
};
struct RankStarted {
  int rank = 0;
  int pid = 0;
};
struct RankJoined {  // its runtime is about to meet the others
  int rank = 0;
};
struct MembersChanged {  // these ranks train together now
  std::vector<int> members;
};
struct NodeJoining {  // a node was added to the placement of the running job
  int node = 0;
};
struct RanksReleased {  // their host is given back, and the others train without them: they are to end
  std::vector<int> ranks;
  bool are_told = false;  // their runtimes are, and end them
};
struct HostsDue {};  // AwaitHosts is over
struct RankStartFailed {
  int rank = 0;
  Error why;
};
struct RankFailing {  // it reported its own failure, and may live on for a while
  int rank = 0;
  FailureNews news;
  TimePoint at{};
};
struct RankComplained {  // its standard error shows a failure; it may live on for any time
  int rank = 0;
  bool has_lost_a_peer = false;  // the failure that it printed last says so
  TimePoint at{};
};
struct RankExited {
  int rank = 0;
  ExitStatus status;
  ExitDetail detail{};
  TimePoint at{};
};
struct CauseDue {};   // AwaitCause is over: a rank that has not failed by now did not fail first
struct RankOverdue {  // AwaitEnd is over: the rank should have ended by now
  int rank = 0;
  int pid = 0;
};
struct NodeDone {  // all its processes are gone
  int node = 0;
};
struct Interrupted {
  int signo = 0;
};
struct OutputFailed {
  Error why;
};
struct FilesFailed {  // the ranks' output still reaches the console, but no longer all of its files
  Error why;
};
struct EngineEnded {  // the engine ended before its agents did
  Error why;
};
struct Misplaced {  // an engine has put a rank elsewhere than planned
  Error why;
};
struct StartTimedOut {};
struct TimedOut {};      // the job has run for as long as --timeout allows
struct StopTimedOut {};  // a node did not report its end in time
using JobEvent =
    std::variant<NodeReady, NodeLost, NodeEnding, RankStarted, RankJoined, MembersChanged, RankStartFailed, RankFailing,
                 RankComplained, RankExited, CauseDue, RankOverdue, NodeDone, NodeJoining, RanksReleased, HostsDue,
                 Interrupted, OutputFailed, FilesFailed, EngineEnded, Misplaced, StartTimedOut, TimedOut, StopTimedOut>;

// ---- actions ----
struct StartRanks {};
struct RestartRank {
  int rank = 0;
  int number = 0;     // counts restarts, from 1
  std::string cause;  // how the rank ended
};
struct GoOnWithout {  // the others of an elastic job are enough, or wait for more
  std::vector<int> ranks;
  std::string cause;
  bool is_short = false;  // they wait
};
struct StartNode {  // a node that joins the running job is ready
  int node = 0;
};
struct AwaitHosts {};  // asks for HostsDue after the time in which hosts may join a job that has too few
struct EndNode {       // ends the ranks of the node in order, and then its agent
  int node = 0;
};
struct StopNodes {
  int signo = 0;              // SIGKILL: at once
  std::vector<int> spared{};  // ranks that are already ending; they get SIGKILL when the grace period is over
};
struct TellRanks {  // sends every runtime the news that the job is over
  std::string cause;
};
struct ReportCause {};    // the first cause is known: report it now, before the errors that follow from it
struct ReportFailing {};  // the same before the rank has ended; ReportCause follows when it has
struct Finish {};         // close the sessions and end
struct AwaitCause {};     // asks for CauseDue after the grace period
struct AwaitEnd {         // asks for RankOverdue after the grace period
  int rank = 0;
  int pid = 0;
};
struct EndRank {
  int rank = 0;
  int signo = 0;
};
using JobAction = std::variant<StartRanks, RestartRank, StopNodes, TellRanks, ReportCause, Finish, ReportFailing,
                               AwaitCause, AwaitEnd, EndRank, GoOnWithout, StartNode, AwaitHosts, EndNode>;

enum class JobPhase : std::uint8_t { kOpening, kRunning, kStopping, kDone };

// Cause says why a job did not succeed.
struct Cause {
  enum class Kind : std::uint8_t {
    kOther,
    kLoss,      // a rank failed, or a host was lost, while the ranks ran: a new start may do better
    kUnreached  // hosts could not be reached
  };
  std::vector<std::string> lines;  // one per failed host or rank: who, what, what to try
  int exit_code = 0;
  int rank = -1;       // the rank whose last lines belong to the report; -1: none
  std::string hint{};  // what the user can do about it while the job ends
  Kind kind = Kind::kOther;
};

struct RankRecord {
  enum class State : std::uint8_t { kPending, kRunning, kEnded, kLost };
  State state = State::kPending;
  int pid = 0;
  bool has_joined = false;   // since its last start
  bool is_member = true;     // it trains with the others, as far as it has joined
  bool is_released = false;  // it was told to end, because its host is given back
  int restarts = 0;
  std::string failed_with{};  // the error of its last process, where that had committed nothing
  bool fails_again = false;   // its last two processes ended so, with the same error
  bool has_followed = false;  // it failed before it was stopped, because of the rank that is the cause
  ExitStatus status;
  ExitDetail detail{};
};

class JobState {
 public:
  // `servers` are ranks that serve the others; the job is over when all others have ended. `restart_limit` is how many
  // times failing ranks are restarted, or done without, counted over all ranks. `grace` is how long a failing rank has
  // to end. `least` is how many ranks an elastic job needs to go on; 0: all of them.
  explicit JobState(const Placement& placement, const std::vector<int>& servers = {}, int restart_limit = 0,
                    Duration grace = std::chrono::seconds(10), int least = 0);

  // Call before the first event. Hosts may join the job while it runs: where too few ranks are left, these wait.
  void let_grow() { may_grow_ = true; }
  // Call before the first event. The job ends when its members change more often than `most` times.
  void limit_resets(std::optional<int> most) { reset_limit_ = most; }
  // Call before the first event. A host on which a rank fails is done without as a whole; no rank is restarted there.
  void exclude_hosts() { excludes_hosts_ = true; }
  std::vector<JobAction> on(const JobEvent& event);

  [[nodiscard]] JobPhase phase() const { return phase_; }
  [[nodiscard]] const std::optional<Cause>& cause() const { return cause_; }
  [[nodiscard]] const std::vector<RankRecord>& ranks() const { return ranks_; }
  // Returns 0 or the cause's code; kOutputFailed for a job that succeeded, but whose files could not all be written.
  [[nodiscard]] int exit_code() const;
  [[nodiscard]] bool has_kept_all() const { return has_kept_all_; }
  // True when ReportFailing came before ReportCause.
  [[nodiscard]] bool was_told_as_failing() const { return was_told_as_failing_; }
  // The ranks that run or are being started, and were not told to end. None where nobody may join any more.
  [[nodiscard]] std::vector<int> ranks_to_keep() const;
  // True when an elastic job goes on if all but these ranks are lost now.
  [[nodiscard]] bool can_do_with(const std::vector<int>& ranks) const;
  // True when no further event can come from this node.
  [[nodiscard]] bool is_over(int node) const {
    const NodeState state = nodes_[static_cast<std::size_t>(node)];
    return phase_ == JobPhase::kDone || state == NodeState::kDone || state == NodeState::kLost;
  }
  // True of a node that could not be reached, or has not said that its ranks have ended.
  [[nodiscard]] bool is_lost(int node) const { return nodes_[static_cast<std::size_t>(node)] == NodeState::kLost; }
  // True when a signal to hvdrun has asked for the end of the job, also while that was ending already.
  [[nodiscard]] bool was_interrupted() const { return interrupts_ > 0; }
  // Names the nodes that have not answered yet, for messages.
  [[nodiscard]] std::vector<std::string> silent_hosts() const;

 private:
  enum class NodeState : std::uint8_t { kOpening, kReady, kDone, kLost };
  using Actions = std::vector<JobAction>;

  Actions handle(const NodeReady& event);
  Actions handle(const NodeLost& event);
  Actions handle(const NodeEnding& event);
  Actions handle(const RankStarted& event);
  Actions handle(const RankJoined& event);
  Actions handle(const MembersChanged& event);
  Actions handle(const RankStartFailed& event);
  Actions handle(const RankFailing& event);
  Actions handle(const RankComplained& event);
  Actions handle(const RankExited& event);
  Actions handle(const CauseDue& event);
  Actions handle(const RankOverdue& event);
  Actions handle(const NodeDone& event);
  Actions handle(const NodeJoining& event);
  Actions handle(const RanksReleased& event);
  Actions handle(const HostsDue& event);
  Actions handle(const Interrupted& event);
  Actions handle(const OutputFailed& event);
  Actions handle(const FilesFailed& event);
  Actions handle(const EngineEnded& event);
  Actions handle(const Misplaced& event);
  Actions handle(const StartTimedOut& event);
  Actions handle(const TimedOut& event);
  Actions handle(const StopTimedOut& event);
  // Handles an event that arrives after all ranks have ended: writing the last of the output may still fail.
  void note_late(const JobEvent& event);
  static Cause cause_of(const OutputFailed& event);
  // Records the cause if it is the first, and stops all ranks.
  Actions stop_for(Cause cause, int signo);
  Actions look_for_cause(bool is_late);
  // Runs while the cause is being looked for: even an event that fails no job may settle it.
  Actions look_again() { return is_awaiting_cause_ ? look_for_cause(false) : Actions(); }
  // Stops the job because this rank failed first.
  Actions stop_for_rank(int rank);
  // The rank that is the cause has ended, after it was reported as failing.
  Actions settle_cause(const RankExited& event);
  // Describes the rank that this one followed, when that one is not to blame either.
  [[nodiscard]] std::string describe_leader(int rank) const;
  // Ends what is left when all ranks that train have ended: parameter servers never end by themselves, ranks of an
  // elastic job may still wait to be taken in, and a node whose rank was done without is not over before it is told so.
  Actions let_others_go();
  // The job is over without this rank.
  [[nodiscard]] bool is_optional(int rank) const;
  // True when the others can go on with the rank after a restart.
  [[nodiscard]] bool is_worth_restarting(const RankRecord& failed) const;
  [[nodiscard]] bool may_lose_more() const;
  // Notes whether the rank has failed as it did before, with nothing gained in between.
  void note_error(int rank);
  // Each rank does so: a new start would not help.
  [[nodiscard]] bool all_fail_again() const;
  // True when the ranks that run and have joined are enough for an elastic job.
  [[nodiscard]] bool can_go_on() const;
  // The ranks of the node that are still there.
  [[nodiscard]] std::vector<int> ranks_there(const NodePlan& node) const;
  [[nodiscard]] bool can_train(int rank) const;
  // It is there and joins the running job, which has done without it until now.
  [[nodiscard]] bool is_newcomer(int rank) const;
  // There are ranks, and each is a newcomer.
  [[nodiscard]] bool are_newcomers(const std::vector<int>& ranks) const;
  // Marks the ranks as lost, and does without them.
  Actions lose(const std::vector<int>& ranks, const std::string& cause, bool is_short);
  // Does without the host of a rank that has failed, if that is to be and the others are enough, or can wait for more.
  std::optional<Actions> leave_host_of(int rank);
  // Does without the ranks, if the others are enough, or can wait for more.
  std::optional<Actions> do_without(const std::vector<int>& ranks, const std::string& cause);
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
  bool is_letting_go_ = false;                   // the ranks that train have ended, and the others are being ended
  std::vector<std::pair<int, Error>> unopened_;  // nodes that could not be reached, in order of arrival
  FailureOrder order_;
  std::optional<Cause> cause_;
  bool is_awaiting_cause_ = false;
  bool is_awaiting_end_ = false;  // waits for the end of the rank that is the cause
  bool was_told_as_failing_ = false;
  int interrupts_ = 0;
  int restarts_ = 0;
  const int restart_limit_;
  const int least_;
  bool may_grow_ = false;
  bool excludes_hosts_ = false;
  std::optional<int> reset_limit_;
  int resets_ = 0;
  std::string last_loss_;           // why the members are about to change; empty: nothing was lost
  std::optional<Cause> short_for_;  // why fewer than `least_` are left, while they wait for more
  bool has_kept_all_ = true;
};

}  // namespace hvd::launch
