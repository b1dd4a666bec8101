// The hosts of a job of a batch system or a cloud, in which hvdrun runs, become those of its own job.
#pragma once

#include <string>

#include "cli/options/flags.h"
#include "launcher/job/job_spec.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Takes the hosts of the batch system's or cloud's job in which hvdrun runs, else those of a host file that a variable
// of an MPI names, where nothing else says where the ranks are to be.
Result<void> apply_engine(const Flags& flags, launch::JobSpec& job);

// Reaches other hosts as mpirun's settings say, where nothing else says how. `rsh_command` of `job` is final but for
// that. Returns the names of these settings; empty: they change nothing.
Result<std::string> apply_mpirun_way(const Flags& flags, launch::JobSpec& job);
// Says so to the user; empty: there is nothing to say.
std::string mpirun_way_notice(const Flags& flags, const launch::JobSpec& job);

// Says, as the end of a message, that hvdrun runs in a job of a batch system whose hosts it was not told to take;
// empty: it does not.
std::string unused_engine(const Flags& flags, const launch::JobSpec& job);

// The job of Slurm's that is to be put back into its queue is the one in which hvdrun runs, wherever its ranks are.
Result<void> apply_requeue(const Flags& flags, launch::JobSpec& job);

}  // namespace hvd::cli
