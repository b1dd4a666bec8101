#include "launcher/check/clock_offset.h"

namespace hvd::launch {

ClockOffset clock_offset(const std::vector<ClockSample>& samples) {
  ClockOffset best;
  best.uncertainty = Duration::max();
  best.round_trip = Duration::max();
  for (const ClockSample& sample : samples) {
    const Duration round_trip(sample.received_ns - sample.sent_ns);
    if (round_trip < Duration::zero() || round_trip >= best.round_trip) {
      continue;
    }
    best.round_trip = round_trip;
    best.uncertainty = round_trip / 2;
    best.offset = Duration(sample.node_ns - sample.sent_ns) - round_trip / 2;
  }
  return best;
}

}  // namespace hvd::launch
