// Link probe: one TCP connection between two nodes, made, proven and tuned as those between ranks are: can it be
// made, how long does a small message take to and fro, and how many bytes a second go one way.
//
// Both ends wait, by poll(2) until their deadline: for a process that does nothing else (launcher/survey/errand.h).
#pragma once

#include <string>

#include "launcher/wire/check_messages.h"
#include "runtime/base/clock.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// What a probe sends at most, in one direction.
inline constexpr std::uint64_t kProbeBytes = 64U << 20U;
inline constexpr Duration kProbeStreamTime = std::chrono::milliseconds(400);

// As the node `from` to node `to` at `address` ("10.0.0.1:4711"). The result has the round trip: the median of at most
// 64 small messages or 0.2 s, after a few that warm up.
ProbeResult dial_probe(const ProbeRequest& request, const JobSecret& secret, Deadline deadline);

// As node `to`: takes the connection that proves itself to be of node `from`; others are closed. The result has the
// bytes that came, at most kProbeBytes and what is sent in kProbeStreamTime, and in which time.
ProbeResult answer_probe(int listener, const ProbeRequest& request, const JobSecret& secret, Deadline deadline);

}  // namespace hvd::launch
