// How far a node's clock is from ours. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd::launch {

struct ClockOffset {
  Duration offset{};       // what the node's clock is ahead; negative: behind
  Duration uncertainty{};  // the truth is no farther from `offset` than this
  Duration round_trip{};   // between launcher and agent
};

// One question: our clock when it was sent and when its answer came, and the node's clock in between.
struct ClockSample {
  std::int64_t sent_ns = 0;
  std::int64_t node_ns = 0;
  std::int64_t received_ns = 0;
};

// The estimate of NTP (RFC 5905, section 8) with a node that answers at once: its clock was read half a round trip
// after the question was sent, give or take that half. Of several samples the one with the shortest round trip counts:
// the clock filter of the same document. Of no samples, or only such that end before they begin, an offset of 0 with no
// certainty at all.
ClockOffset clock_offset(const std::vector<ClockSample>& samples);

}  // namespace hvd::launch
