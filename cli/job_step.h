// run_step() runs one placement of ranks to its end: a whole job, or one of the steps of a job file's job.
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
  // Returns the reporter to use, made around the job's own one; empty: the job's own.
  std::function<std::unique_ptr<launch::JobReporter>(std::unique_ptr<launch::JobReporter>)> report_by;
  launch::LogMux::Rewrite rewrite{};  // replaces lines of the ranks' output on the console
};

// Returns hvdrun's exit code. Its event loop, and everything registered with it, ends when it returns.
Result<int> run_step(const JobStep& step);

}  // namespace hvd::cli
