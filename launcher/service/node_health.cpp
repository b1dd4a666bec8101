#include "launcher/service/node_health.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {

NodeHealth after_failure(NodeHealth health, std::string why, std::int64_t now_ms) {
  constexpr int kMostDoublings = 6;  // a minute becomes more than an hour
  const int doublings = std::clamp(health.failures, 0, kMostDoublings);
  health.unusable_until_ms = now_ms + std::min(kFirstUnusableMs << doublings, kLongestUnusableMs);
  health.failures = doublings + 1;
  health.why = std::move(why);
  return health;
}

}  // namespace hvd::launch
