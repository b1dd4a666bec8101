// The guardian is the agent's outer process. It only waits, so that the node is cleaned up even when the agent itself
// is killed: the ranks die with the agent (PR_SET_PDEATHSIG), everything that they left becomes the guardian's child,
// and the guardian ends it. When the guardian is killed instead, the agent learns of it and stops its ranks.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

// Makes a 0700 scratch directory under `base` (a TMPDIR value) and runs `agent` in a child process with the standard
// descriptors of this one. Waits for it, ends whatever is left, and removes the directory. Returns the agent's exit
// code in the form that a shell uses. Directories there of this user's agents that were killed with their guardians are
// removed meanwhile. `is_users`: a user has started this one, whose terminal keeps it.
//
// Thread: call before any thread is started.
Result<int> run_guarded(const std::string& base, const std::function<int(const std::string& scratch_dir)>& agent,
                        bool is_users = false);

}  // namespace hvd::launch
