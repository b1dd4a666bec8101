// clock_offset() estimates how far a node's clock is from ours. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd::launch {

struct ClockOffset {
  Duration offset{};       // by how much the node's clock is ahead; negative: behind
  Duration uncertainty{};  // the truth is no farther from `offset` than this
  Duration round_trip{};   // between launcher and agent
};

// ClockSample is one question: our clock when it was sent and when the answer arrived, and the node's clock in between.
struct ClockSample {
  std::int64_t sent_ns = 0;
  std::int64_t node_ns = 0;
  std::int64_t received_ns = 0;
};

// This is the estimate of NTP (RFC 5905, section 8) for a node that answers at once. Its clock was read half a round
// trip after the question was sent, give or take that half. Of several samples the one with the shortest round trip
// counts, as in the clock filter of the same document. Without a sample, or with only samples that end before they
// begin, the offset is 0 and its uncertainty unlimited.
ClockOffset clock_offset(const std::vector<ClockSample>& samples);

}  // namespace hvd::launch
