// These are hvdrun's commands: each takes the parsed command line and returns hvdrun's exit code.
#pragma once

#include <string>
#include <vector>

#include "cli/options/options.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Runs the job, of words or of a job file.
Result<int> run_job(const CliOptions& options);
// Measures the hosts with ranks of hvdrun's own.
Result<int> run_bench(const CliOptions& options);
// Prints the placement and each rank's environment, as a table or JSON; starts nothing, touches no network.
Result<int> print_plan(const CliOptions& options);
// Checks the hosts and the links between them, and prints the findings as tables or JSON; starts no rank. The exit code
// says whether a job could start.
Result<int> check_hosts(const CliOptions& options);
// Submits a job file's job to the service, and tells how to follow it.
Result<int> submit_job(const CliOptions& options);
// Prints what a job would run on a cluster instead (plan --cluster).
Result<int> plan_on_cluster(const CliOptions& options);
// Submits a job to Slurm, and tells how to follow it; plan_on_slurm() prints the script that sbatch would get.
Result<int> submit_to_slurm(const CliOptions& options);
Result<int> plan_on_slurm(const CliOptions& options);
// Leaves the exit code of a job that Slurm runs where the commands that ask for it look.
void write_status(const std::string& file, int code);
// Removes what an earlier run of the job has left there, before Slurm began it anew.
void forget_status(const std::string& file);
// Runs any other command of the service.
Result<int> serve(const ServiceOptions& options);
// Shows a running job until it ends, or once.
Result<int> show_top(const TopOptions& options);
// Becomes an agent that joins a running job.
Result<int> join_job(const JoinOptions& options);
// Prints where the ranks of a running job are.
Result<int> show_stacks(const StacksOptions& options);
// Prints what a timeline says.
Result<int> show_timeline(const TimelineOptions& options);
// Prints the manual's topics, or the page of one; on a terminal in a pager.
Result<int> show_help(const CliOptions& options);
// Prints what this build can do, what is missing, and what would add it.
int print_build();

}  // namespace hvd::cli
