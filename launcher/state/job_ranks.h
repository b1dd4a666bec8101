// JobRanks follows the processes of a job's ranks: each is started, may fail, and ends; and one end may be that of the
// job. Pure.
#pragma once

#include <vector>

#include "launcher/state/elastic_changes.h"
#include "launcher/state/first_failure.h"
#include "launcher/state/job_actions.h"
#include "launcher/state/job_end.h"
#include "launcher/state/job_events.h"
#include "launcher/state/running_job.h"

namespace hvd::launch {

class JobRanks {
 public:
  JobRanks(RunningJob& job, JobEnd& end, ElasticChanges& changes, FirstFailure& failure)
      : job_(job), end_(end), changes_(changes), failure_(failure) {}

  JobActions handle(const RankStarted& event);
  JobActions handle(const RankJoined& event);
  JobActions handle(const RankStartFailed& event);
  JobActions handle(const RankFailing& event);
  JobActions handle(const RankExited& event);
  JobActions handle(const RankOverdue& event);

 private:
  // A rank has ended that was told to, because its host is given back.
  JobActions end_released(const RankExited& event);
  JobActions after_released(int rank);
  // The rank, and those of its node that were to join with it and do not run.
  [[nodiscard]] std::vector<int> unstarted_newcomers(int reported) const;
  // A rank has failed, and may not be the cause.
  JobActions fail(int rank, bool is_newcomer);

  RunningJob& job_;
  JobEnd& end_;
  ElasticChanges& changes_;
  FirstFailure& failure_;
};

}  // namespace hvd::launch
