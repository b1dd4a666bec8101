// These functions turn what the command line says of a job file into the run that is meant.
#pragma once

#include "cli/options/flags.h"
#include "cli/options/options.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Reads the file; sets job, file and notices. It also reads everything that make_job() reads.
Result<void> read_job_file_flags(Flags flags, CliOptions& options);
// Flags that mean nothing without a job file are an error.
Result<void> check_no_job_file_flags(const Flags& flags);

}  // namespace hvd::cli
