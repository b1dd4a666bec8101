// Dial: an agent that an engine started calls the launcher (launcher/transport/dial_back.h). It waits, for the agent
// has nothing else to do yet.
#pragma once

#include <string>
#include <vector>

#include "launcher/wire/engine_call.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/record.h"

namespace hvd::launch {

// A connection on which both ends have proven themselves, and the keys for what follows on it.
struct DialedLauncher {
  Fd fd;
  RecordKeys keys;
};

// All addresses are tried at once and the first that answers as it should is taken: which of them lead to the launcher
// from here, only this node can tell, and another machine may have the same. Left out are addresses that are this
// node's own (docker0 and virbr0 have the same everywhere), unless the launcher is on it. An error tells what came of
// each.
Result<DialedLauncher> dial_launcher(const CallPlace& place, const CallKey& key, int rank, Deadline deadline);

// Of `addresses` those that are not of `own_ips` nor of loopback. Pure.
std::vector<std::string> addresses_elsewhere(const std::vector<std::string>& addresses,
                                             const std::vector<std::string>& own_ips);

}  // namespace hvd::launch
