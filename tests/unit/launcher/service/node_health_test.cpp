#include "launcher/service/node_health.h"

#include <doctest/doctest.h>

namespace hvd::launch::node_health_test {

TEST_CASE("a node that cannot be reached is left out for a minute, then for twice as long, up to an hour") {
  constexpr std::int64_t kMinute = 60'000;
  std::int64_t now = 1'500'000'000'000;
  NodeHealth health = after_success();
  CHECK_FALSE(is_unusable(health, now));
  for (const int minutes : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
    health = after_failure(health, "b: no answer", now);
    CHECK(is_unusable(health, now + minutes * kMinute - 1));
    now += minutes * kMinute;
    CHECK_FALSE(is_unusable(health, now));
  }
  CHECK(health.was_reached);
  CHECK(health.why == "b: no answer");
  CHECK(after_failure(after_success(), "", now).unusable_until_ms == now + kMinute);
}

TEST_CASE("a clock that is set back does not keep a node out of service") {
  const NodeHealth health = after_failure({}, "", 1'500'000'000'000);
  CHECK_FALSE(health.was_reached);
  CHECK_FALSE(is_unusable(health, 1000));
}

TEST_CASE("a count of failures that no program has written does no harm") {
  NodeHealth health;
  for (const int failures : {-5, 1'000'000}) {
    health.failures = failures;
    const NodeHealth next = after_failure(health, "", 0);
    CHECK(next.unusable_until_ms > 0);
    CHECK(next.unusable_until_ms <= kLongestUnusableMs);
  }
}

}  // namespace hvd::launch::node_health_test
