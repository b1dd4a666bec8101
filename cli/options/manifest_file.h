// Reads a job file for hvdrun manifest: what a pod can do of it becomes flags and a command, as if these had been
// given. What a pod cannot do is refused, with its place in the file: a pod's folders, mounts and secrets are the
// cluster's.
#pragma once

#include <string>
#include <vector>

#include "cli/options/flags.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Changes `flags` to those of the command that the file's ranks run, and returns the options that hvdrun is to be given
// for it in its pod. Flags that were given win over the file.
Result<std::vector<std::string>> take_job_file_for_pods(Flags& flags);

}  // namespace hvd::cli
