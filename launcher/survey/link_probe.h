// A link probe is one TCP connection between two nodes, made, proven and tuned as those between ranks are. It shows
// whether the connection can be made, how long a small message takes to and fro, and how many bytes a second go one
// way.
//
// Both ends block, by poll(2) until their deadline, so they need a process of their own (launcher/survey/errand.h).
#pragma once

#include <string>

#include "launcher/wire/check_messages.h"
#include "runtime/base/clock.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// A probe sends at most so much in one direction.
inline constexpr std::uint64_t kProbeBytes = 64U << 20U;
inline constexpr Duration kProbeStreamTime = std::chrono::milliseconds(400);

// Acts as the node `from` and calls node `to` at `address` ("10.0.0.1:4711"). The result has the round trip: the median
// of at most 64 small messages or 0.2 s, after a few that warm up.
ProbeResult dial_probe(const ProbeRequest& request, const JobSecret& secret, Deadline deadline);

// Acts as node `to`: takes the connection that proves itself to be node `from`'s, and closes others. The result has the
// bytes that came and their time: at most kProbeBytes, and what is sent in kProbeStreamTime.
ProbeResult answer_probe(int listener, const ProbeRequest& request, const JobSecret& secret, Deadline deadline);

}  // namespace hvd::launch
