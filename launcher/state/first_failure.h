// FirstFailure finds the rank that is the cause of a job's failure, and stops the job for it. What FailureOrder knows
// may not be enough at once; then the decision waits. Pure.
#pragma once

#include <string>

#include "launcher/state/elastic_changes.h"
#include "launcher/state/job_actions.h"
#include "launcher/state/job_end.h"
#include "launcher/state/job_events.h"
#include "launcher/state/running_job.h"

namespace hvd::launch {

class FirstFailure {
 public:
  FirstFailure(RunningJob& job, JobEnd& end, const ElasticChanges& changes) : job_(job), end_(end), changes_(changes) {}

  JobActions handle(const RankComplained& event);
  JobActions handle(const CauseDue& event);

  // Stops the job for the first failure, once it is known. `is_late`: the wait for it is over.
  JobActions look(bool is_late);
  // Runs while the cause is being looked for: even an event that fails no job may settle it.
  JobActions look_again() { return is_awaiting_cause_ ? look(false) : JobActions(); }
  // The rank that is the cause has ended, after it was reported as failing.
  JobActions settle(const RankExited& event);

  // True when ReportFailing came before ReportCause.
  [[nodiscard]] bool was_told_as_failing() const { return was_told_as_failing_; }

 private:
  // Stops the job because this rank failed first.
  JobActions stop_for_rank(int rank);
  [[nodiscard]] std::string describe_cause(int rank) const;
  // Describes the rank that this one followed, when that one is not to blame either.
  [[nodiscard]] std::string describe_leader(int rank) const;

  RunningJob& job_;
  JobEnd& end_;
  const ElasticChanges& changes_;
  bool is_awaiting_cause_ = false;
  bool was_told_as_failing_ = false;
};

}  // namespace hvd::launch
