// make_job() turns the flags of the command line into the job that they mean. All of hvdrun gets the environment and
// the working directory from here; hvdrun-agent, which has no flags, reads its own environment.
#pragma once

#include <string>
#include <vector>

#include "cli/options/flags.h"
#include "launcher/job/job_spec.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Reads the environment, the working directory and the files that the flags name. An error is the user's
// (Code::kInvalid), with what was expected, or says that the installation is broken.
Result<launch::JobSpec> make_job(const Flags& flags);

// Returns the path of the agent, which is installed beside hvdrun.
Result<std::string> agent_path();

// Returns what the word means: "local", "one" or "none". The parsers let no other through.
launch::GpuMode gpu_mode_of(const std::string& word);

// Returns the variables that -x names and this process has not, as "-x A, -x B".
std::string unset_variables(const Flags& flags);

// Returns what is to be said of flags that have no effect on the job.
std::vector<std::string> notices_of(const Flags& flags, const launch::JobSpec& job);

// Returns "NAME=value" entries.
std::vector<std::string> own_environment();

// Returns where hvdrun keeps files that outlive it: $XDG_STATE_HOME/hvdrun, else ~/.local/state/hvdrun.
Result<std::string> state_root();

}  // namespace hvd::cli
