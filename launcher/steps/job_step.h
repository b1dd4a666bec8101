// run_step() runs one placement of ranks to its end: a whole job, or one of the steps of a job file's job.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "launcher/job/job_spec.h"
#include "launcher/logs/log_mux.h"
#include "launcher/offers/host_offers.h"
#include "launcher/offers/host_source.h"
#include "launcher/page/job_records.h"
#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"
#include "launcher/run/start_plan.h"
#include "launcher/tree/tree_scan.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct JobStep {
  const JobSpec& job;
  const Placement& placement;
  ProgramsOf programs;  // empty: every rank runs job.argv
  // Returns the reporter to use, made around the job's own one, for the placement, which grows while nodes join; empty:
  // the job's own.
  std::function<std::unique_ptr<JobReporter>(std::unique_ptr<JobReporter>, const Placement&)> report_by;
  LogMux::Rewrite rewrite{};  // replaces lines of the ranks' output on the console
  LateProgramsOf late_programs{};
  // Returns what says which hosts join and leave; empty, or null: what job.discovery says.
  std::function<std::unique_ptr<HostSource>(EventLoop&)> host_source{};
  // Becomes true when the step has ended because the time of Slurm's job is over, and that may go back into the queue;
  // null: nobody asks.
  bool* is_to_be_requeued = nullptr;
  JobRecords* records = nullptr;  // hear of the step; null: nobody does
  const char* name = "job";       // of the step, in the records
  // What is known of the hosts, as of some that have failed; null: nothing.
  const HostOffers* offers = nullptr;
  // Returns the folder that the nodes get, where the whole job knows more of it than the step; empty: what `job` says.
  std::function<Result<std::optional<Tree>>()> tree{};
  // A signal came when the step had ended with this code, and its engine had not. Returns whether more was to follow,
  // which does not; the step then ends with the signal's code. Empty: nothing follows, and the signal comes too late.
  std::function<bool(int signo, int code)> on_late_signal{};
};

// Returns hvdrun's exit code. Its event loop, and everything registered with it, ends when it returns.
Result<int> run_step(const JobStep& step);

}  // namespace hvd::launch
