// Dial: an agent that an engine started calls the launcher (launcher/transport/dial_back.h). It waits, for the agent
// has nothing else to do yet.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// A connection on which both ends have proven that they know the secret. All addresses are tried at once and the first
// that answers so is taken: which of them lead to the launcher from here, only this node can tell, and another machine
// may have the same. An error tells what came of each.
Result<Fd> dial_launcher(const std::vector<std::string>& addresses, const JobSecret& secret, int rank,
                         Deadline deadline);

}  // namespace hvd::launch
