// RestartedJob runs a job again and again until it has ended: one whose ranks cannot go on without one another, and one
// whose first start met hosts that cannot be reached. Each start is a step of its own, on the hosts that there are
// then.
#pragma once

#include <functional>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/state/job_restarts.h"
#include "launcher/steps/job_step.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class RestartedJob {
 public:
  // `run` runs one start. `records` outlive it.
  RestartedJob(JobSpec job, Placement placement, JobRecords& records,
               std::function<Result<int>(const JobStep&)> run = run_step);

  // Returns hvdrun's exit code.
  Result<int> run();
  [[nodiscard]] bool is_to_be_requeued() const { return is_to_be_requeued_; }

 private:
  [[nodiscard]] HostList hosts() const;
  [[nodiscard]] JobRestarts::Limits limits() const;
  // Places the ranks on the hosts that there are, once these are enough.
  Result<void> place_again(JobRestarts& restarts);
  // A signal has ended the job between two starts.
  [[nodiscard]] Error stopped_error() const;
  // The job ends between two starts.
  void say_end(const Error& why, int code);

  const SteadyClock clock_;
  JobSpec job_;
  Placement placement_;
  JobRecords& records_;
  const std::function<Result<int>(const JobStep&)> run_;
  const Duration first_timeout_;
  int stopped_by_ = 0;
  bool is_to_be_requeued_ = false;
};

}  // namespace hvd::launch
