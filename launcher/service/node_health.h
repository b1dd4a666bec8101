// NodeHealth is what jobs have found out about a node of a cluster: whether any of them has reached it, and for how
// long no job gets it because one could not. Pure.
//
// A node that cannot be reached is unusable for a minute, and after each further failure for twice as long, up to an
// hour. Then a job gets it again, which is how its return is noticed: nobody else looks.
#pragma once

#include <cstdint>
#include <string>

namespace hvd::launch {

struct NodeHealth {
  bool was_reached = false;            // by any job, ever
  int failures = 0;                    // in a row
  std::int64_t unusable_until_ms = 0;  // since 1970
  std::string why;                     // it could not be reached the last time

  friend bool operator==(const NodeHealth&, const NodeHealth&) = default;
};

inline constexpr std::int64_t kFirstUnusableMs = 60'000;
inline constexpr std::int64_t kLongestUnusableMs = std::int64_t{3600} * 1000;

// A time that lies further ahead than any failure sets it is of a clock that was set back, and does not count.
inline bool is_unusable(const NodeHealth& health, std::int64_t now_ms) {
  return health.unusable_until_ms > now_ms && health.unusable_until_ms - now_ms <= kLongestUnusableMs;
}
NodeHealth after_failure(NodeHealth health, std::string why, std::int64_t now_ms);
inline NodeHealth after_success() {
  return {true, 0, 0, ""};
}

}  // namespace hvd::launch
