// The guardian is the agent's outer process. It only waits, so that the node is cleaned up even when the agent itself
// is killed: the ranks die with the agent (PR_SET_PDEATHSIG), everything that they left becomes the guardian's child,
// and the guardian ends it. When the guardian is killed instead, the agent learns of it and stops its ranks.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

// ScratchBase is the folder in which an agent makes its own.
struct ScratchBase {
  std::string folder;
  std::string why;  // it is another one than TMPDIR says; empty: nothing to be said
};

// Returns what `tmpdir` (a TMPDIR value) names, or /tmp where it is empty or too long. `may_be_anothers`: it may be of
// another machine, as where a batch script makes a folder on its own node and an engine hands the variable on; /tmp
// then takes the place of one that is not there.
ScratchBase scratch_base(const std::string& tmpdir, bool may_be_anothers);

// Makes a 0700 scratch directory under `base` (a TMPDIR value) and runs `agent` in a child process with the standard
// descriptors of this one. Waits for it, ends whatever is left, and removes the directory. Returns the agent's exit
// code in the form that a shell uses. Directories there of this user's agents that were killed with their guardians are
// removed meanwhile. `is_users`: a user has started this one, whose terminal keeps it.
//
// Thread: call before any thread is started.
Result<int> run_guarded(const std::string& base, const std::function<int(const std::string& scratch_dir)>& agent,
                        bool is_users = false);

}  // namespace hvd::launch
