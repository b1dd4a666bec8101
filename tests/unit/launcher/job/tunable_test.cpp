#include "launcher/job/tunable.h"

#include <string>

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
  CHECK(stall_check_time({}, {"HOROVOD_STALL_CHECK_DISABLE=false"}) == 60s);
  CHECK(stall_check_time({}, {"HOROVOD_STALL_CHECK_DISABLE=yes"}) == 0s);
}

TEST_CASE("an unknown setting or section of a configuration file names the nearest one") {
  const auto told = [](const std::string& text) { return parse_config_file(text, "f").error().message(); };
  CHECK(told("params:\n  cycle_time: 3\n") ==
        "f:2:3: unknown setting 'params.cycle_time'; did you mean params.cycle_time_ms?");
  CHECK(told("autotune:\n  warmup_sample: 3\n").ends_with("; did you mean autotune.warmup_samples?"));
  CHECK(told("params:\n  color: 3\n") == "f:2:3: unknown setting 'params.color'");
  CHECK(told("parms: 3\n") == "f:1:1: unknown section 'parms'; did you mean params?");
  CHECK(told("colors: 3\n").starts_with("f:1:1: unknown section 'colors'; there are params, autotune, timeline, "));
}

}  // namespace hvd::launch::tunable_test
