#include "launcher/job/tunable.h"

#include <doctest/doctest.h>

namespace hvd::launch::tunable_test {

using namespace std::chrono_literals;

TEST_CASE("hvdrun takes for a stall what the ranks' runtime takes for one") {
  CHECK(stall_check_time({}, {}) == 60s);
  CHECK(stall_check_time({}, {"HOROVOD_STALL_CHECK_TIME_SECONDS=2.5"}) == 2500ms);
  CHECK(stall_check_time({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"}}, {"HOROVOD_STALL_CHECK_TIME_SECONDS=2.5"}) == 5s);
  CHECK(stall_check_time({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "soon"}}, {}) == 60s);
  CHECK(stall_check_time({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "1e300"}}, {}) == 60s);
  CHECK(stall_check_time({{"HOROVOD_STALL_CHECK_DISABLE", "1"}}, {}) == 0s);
  CHECK(stall_check_time({}, {"HOROVOD_STALL_CHECK_DISABLE=0"}) == 60s);
}

}  // namespace hvd::launch::tunable_test
