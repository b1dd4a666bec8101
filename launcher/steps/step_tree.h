// tree_of() finds out what of a job's folder is to be on its nodes (--sync).
#pragma once

#include <optional>
#include <string>

#include "launcher/job/job_spec.h"
#include "launcher/tree/tree_scan.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Returns nothing where the job brings none. What the job itself writes there is left out. Blocks as long as it takes
// to read all files. An error is the user's.
Result<std::optional<Tree>> tree_of(const JobSpec& job);

// Whether the tree has the file that a command line in `cwd` names like this.
bool would_bring(const Tree& tree, const std::string& cwd, const std::string& name);

}  // namespace hvd::launch
