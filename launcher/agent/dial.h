// These functions let an agent that an engine started call the launcher (launcher/transport/dial_back.h). They block,
// for the agent has nothing else to do yet.
#pragma once

#include <string>
#include <vector>

#include "launcher/wire/engine_call.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/record.h"

namespace hvd::launch {

// DialedLauncher is a connection on which both ends have proven themselves, with the keys for what follows.
struct DialedLauncher {
  Fd fd;
  RecordKeys keys;
};

// Tries all addresses at once and takes the first that answers as it should: only this node can tell which of them lead
// to the launcher from here, and another machine may have the same address. Addresses of this node itself are left out
// (docker0 and virbr0 have the same everywhere), unless the launcher is on it. An error says what came of each address.
Result<DialedLauncher> dial_launcher(const CallPlace& place, const CallKey& key, int rank, Deadline deadline);

// Returns the `addresses` that are neither in `own_ips` nor loopback. Pure.
std::vector<std::string> addresses_elsewhere(const std::vector<std::string>& addresses,
                                             const std::vector<std::string>& own_ips);

}  // namespace hvd::launch
