// The commands: each takes what the command line said and returns hvdrun's exit code.
#pragma once

#include "cli/options.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Runs the job.
Result<int> run_job(const CliOptions& options);
// Runs the job that a file describes: prepares its nodes, runs its processes, and cleans up.
Result<int> run_job_file(const CliOptions& options);

// What whoever supervises a job file's job is told of it, and may refuse: an error ends the job before it does that.
class FileJobObserver {
 public:
  virtual ~FileJobObserver() = default;
  // Where its files are; empty: nowhere.
  virtual Result<void> on_output(const std::string& directory) = 0;
  // Its nodes are about to be reached, set up and prepared.
  virtual Result<void> on_preparing() = 0;
  virtual void on_nodes(const std::vector<launch::JobNodeFacts>& facts) = 0;
  // Its processes are about to be started.
  virtual Result<void> on_ranks() = 0;

 protected:
  FileJobObserver() = default;
  FileJobObserver(const FileJobObserver&) = default;
  FileJobObserver& operator=(const FileJobObserver&) = default;
};
Result<int> run_job_file(const CliOptions& options, FileJobObserver& observer);
// Measures the hosts by ranks of our own.
Result<int> run_bench(const CliOptions& options);
// Prints the placement and each rank's environment, as a table or JSON; starts nothing, touches no network.
Result<int> print_plan(const CliOptions& options);
// Checks the hosts and what is between them, and prints what was found, as tables or JSON; starts no rank. The exit
// code says whether a job could start.
Result<int> check_hosts(const CliOptions& options);
// Gives a job file's job to the service, and prints its record.
Result<int> submit_job(const CliOptions& options);
// The same, shown instead: what a job would run on a cluster (plan --cluster).
Result<int> plan_on_cluster(const CliOptions& options);
// Whatever else the service does.
Result<int> serve(const ServiceOptions& options);
// Prints the manual's topics, or the page of one; on a terminal in a pager.
Result<int> show_help(const CliOptions& options);
// Prints what this build can do, what is missing, and what would bring it.
int print_build();

}  // namespace hvd::cli
