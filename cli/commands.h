// The commands: each takes what the command line said and returns hvdrun's exit code.
#pragma once

#include "cli/options.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Runs the job.
Result<int> run_job(const CliOptions& options);
// Runs the job that a file describes: prepares its nodes, runs its processes, and cleans up.
Result<int> run_job_file(const CliOptions& options);
// Measures the hosts by ranks of our own.
Result<int> run_bench(const CliOptions& options);
// Prints the placement and each rank's environment, as a table or JSON; starts nothing, touches no network.
Result<int> print_plan(const CliOptions& options);
// Checks the hosts and what is between them, and prints what was found, as tables or JSON; starts no rank. The exit
// code says whether a job could start.
Result<int> check_hosts(const CliOptions& options);
// Prints what this build can do, what is missing, and what would bring it.
int print_build();

}  // namespace hvd::cli
