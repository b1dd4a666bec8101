// Guardian: the agent's outer process. It does nothing but wait, so that the node is cleaned up also when the agent
// itself is killed: its ranks die with it (PR_SET_PDEATHSIG), everything that they left becomes the guardian's child,
// and the guardian ends it. When the guardian is killed instead, the agent learns of it and stops its ranks.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

// Makes a 0700 scratch directory under `base` (a TMPDIR value), runs `agent` in a child process with the standard
// descriptors of this one, waits for it, ends whatever is left, removes the directory. Returns the agent's exit code as
// a shell has it.
//
// Thread: call before any thread is started.
Result<int> run_guarded(const std::string& base, const std::function<int(const std::string& scratch_dir)>& agent);

}  // namespace hvd::launch
