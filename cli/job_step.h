// One placement of ranks run to its end: a whole job, or one of the steps that a job file's job has.
#pragma once

#include <functional>
#include <memory>

#include "launcher/job/job_spec.h"
#include "launcher/logs/log_mux.h"
#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"
#include "launcher/run/start_plan.h"
#include "runtime/base/result.h"

namespace hvd::cli {

struct JobStep {
  const launch::JobSpec& job;
  const launch::Placement& placement;
  launch::ProgramsOf programs;  // empty: every rank runs job.argv
  // What reports in place of the job's own reporter, which it is given; empty: that one does.
  std::function<std::unique_ptr<launch::JobReporter>(std::unique_ptr<launch::JobReporter>)> report_by;
  launch::LogMux::Rewrite rewrite{};  // what of the ranks' output is shown otherwise
};

// hvdrun's exit code. Its loop, and all that watches something, ends with it.
Result<int> run_step(const JobStep& step);

}  // namespace hvd::cli
