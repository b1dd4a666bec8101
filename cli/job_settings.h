// From what the command line says to the job that is meant.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "launcher/job/job_spec.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Reads the environment, the working directory and the files that the flags name; nothing else in the program reads the
// first two. An error is the user's (Code::kInvalid), with what was expected, or that of a broken installation.
Result<launch::JobSpec> make_job(const Flags& flags);

// Refuses a --stdin that names a rank which a job of `size` ranks has not.
Result<void> check_input_rank(const launch::JobSpec& job, int size);

// "NAME=value".
std::vector<std::string> own_environment();

// Where hvdrun keeps what outlives it: $XDG_STATE_HOME/hvdrun, else ~/.local/state/hvdrun.
Result<std::string> state_root();

}  // namespace hvd::cli
