// These functions turn what the command line says of a job file into the run that is meant.
#pragma once

#include <string>
#include <vector>

#include "cli/options/flags.h"
#include "cli/options/options.h"
#include "launcher/jobfile/job_file.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Returns what the flags, the cluster and the environment say for the reading of the file. kInvalid: a mount is none.
Result<launch::JobFileOptions> reading_options(const Flags& flags, const std::vector<std::string>& environment);
// Reads the file; sets job, file and notices. It also reads everything that make_job() reads.
Result<void> read_job_file_flags(Flags flags, CliOptions& options);
// Flags that mean nothing without a job file are an error.
Result<void> check_no_job_file_flags(const Flags& flags);

}  // namespace hvd::cli
