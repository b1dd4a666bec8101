// JobState decides what a job does next, as a pure function of its events: no I/O, no clock. JobRunner feeds it events
// and carries out its actions.
//
// Phases: opening (agents are being reached) -> running -> stopping (something ended the job) -> done. The first cause
// wins, because what fails after it fails as its consequence. Among ranks the first is the one that failed first, even
// if another one ends earlier (FailureOrder). While that is not certain the decision waits, for the grace period at
// most.
//
// Each event belongs to one of five objects, which share what is known of the job (RunningJob). Each uses only those
// that stand before it: JobEnd, ElasticChanges, FirstFailure, JobNodes, JobRanks.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "launcher/placement/placement.h"
#include "launcher/state/elastic_changes.h"
#include "launcher/state/first_failure.h"
#include "launcher/state/job_actions.h"
#include "launcher/state/job_end.h"
#include "launcher/state/job_events.h"
#include "launcher/state/job_nodes.h"
#include "launcher/state/job_ranks.h"
#include "launcher/state/running_job.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

class JobState {
 public:
  // `servers` are ranks that serve the others; the job is over when all others have ended. `restart_limit` is how many
  // times failing ranks are restarted, or done without, counted over all ranks. `grace` is how long a failing rank has
  // to end. `least` is how many ranks an elastic job needs to go on; 0: all of them.
  explicit JobState(const Placement& placement, const std::vector<int>& servers = {}, int restart_limit = 0,
                    Duration grace = std::chrono::seconds(10), int least = 0);

  JobState(const JobState&) = delete;
  JobState& operator=(const JobState&) = delete;

  // Call before the first event. Hosts may join the job while it runs: where too few ranks are left, these wait.
  void let_grow() { changes_.let_grow(); }
  // Call before the first event. The job ends when its members change more often than `most` times.
  void limit_resets(std::optional<int> most) { changes_.limit_resets(most); }
  // Call before the first event. A host on which a rank fails is done without as a whole; no rank is restarted there.
  void exclude_hosts() { changes_.exclude_hosts(); }
  JobActions on(const JobEvent& event);

  [[nodiscard]] JobPhase phase() const { return job_.phase; }
  [[nodiscard]] const std::optional<Cause>& cause() const { return job_.cause; }
  [[nodiscard]] const std::vector<RankRecord>& ranks() const { return job_.ranks; }
  // Returns 0 or the cause's code; kOutputFailed for a job that succeeded, but whose files could not all be written.
  [[nodiscard]] int exit_code() const { return end_.exit_code(); }
  [[nodiscard]] bool has_kept_all() const { return end_.has_kept_all(); }
  // True when ReportFailing came before ReportCause.
  [[nodiscard]] bool was_told_as_failing() const { return failure_.was_told_as_failing(); }
  // The ranks that run or are being started, and were not told to end. None where nobody may join any more.
  [[nodiscard]] std::vector<int> ranks_to_keep() const { return changes_.ranks_to_keep(); }
  // True when an elastic job goes on if all but these ranks are lost now.
  [[nodiscard]] bool can_do_with(const std::vector<int>& ranks) const { return changes_.can_do_with(ranks); }
  // True when no further event can come from this node.
  [[nodiscard]] bool is_over(int node) const {
    const NodeState state = job_.node(node);
    return job_.phase == JobPhase::kDone || state == NodeState::kDone || state == NodeState::kLost;
  }
  // True of a node that could not be reached, or has not said that its ranks have ended.
  [[nodiscard]] bool is_lost(int node) const { return job_.node(node) == NodeState::kLost; }
  [[nodiscard]] bool has_lost_nodes() const {
    return std::find(job_.nodes.begin(), job_.nodes.end(), NodeState::kLost) != job_.nodes.end();
  }
  // True when a signal to hvdrun has asked for the end of the job, also while that was ending already.
  [[nodiscard]] bool was_interrupted() const { return end_.was_interrupted(); }
  // Counts the other ranks that run or are being started.
  [[nodiscard]] std::size_t running_besides(int rank) const;
  // Names the nodes that have not answered yet, for messages.
  [[nodiscard]] std::vector<std::string> silent_hosts() const { return nodes_.silent_hosts(); }

 private:
  // Gives the event to the object whose it is.
  template <typename Event>
  JobActions handle(const Event& event);

  RunningJob job_;
  JobEnd end_;
  ElasticChanges changes_;
  FirstFailure failure_;
  JobNodes nodes_;
  JobRanks ranks_;
};

}  // namespace hvd::launch
