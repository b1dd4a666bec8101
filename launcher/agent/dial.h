// These functions let an agent that an engine started call the launcher (launcher/transport/dial_back.h). They block,
// for the agent has nothing else to do yet.
#pragma once

#include <functional>
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

inline constexpr const char* kDialAdvice = "is a firewall between this host and the one where hvdrun runs?";

// Tries all addresses at once and takes the first that answers as it should: only this node can tell which of them lead
// to the launcher from here, and another machine may have the same address. Addresses of this node itself are left out
// (docker0 and virbr0 have the same everywhere), unless the launcher is on it. An error says what came of each address.
// `advice`: what to look at then.
Result<DialedLauncher> dial_launcher(const CallPlace& place, const CallKey& key, int rank, Deadline deadline,
                                     const std::string& advice = kDialAdvice);

// LauncherName is where an agent looks for the launcher when it knows its name only.
struct LauncherName {
  std::string host;
  int port = 0;
  [[nodiscard]] std::string text() const { return host + ":" + std::to_string(port); }
};
Result<LauncherName> parse_launcher_name(const std::string& text);

// Looks the name up and tries its addresses until one leads to the launcher, or the deadline has passed. A name that
// nobody knows yet and a launcher that does not listen yet are usual where all is started at the same time; `say` takes
// one line about that. Whoever answers and fails to prove itself is tried three times only. An error says what came of
// the last attempt. Whoever has the secret is taken for the launcher.
Result<DialedLauncher> dial_by_name(const LauncherName& name, const JobSecret& secret, int rank, Deadline deadline,
                                    const std::function<void(const std::string&)>& say);

// Returns the `addresses` that are neither in `own_ips` nor loopback. Pure.
std::vector<std::string> addresses_elsewhere(const std::vector<std::string>& addresses,
                                             const std::vector<std::string>& own_ips);

}  // namespace hvd::launch
