// launcher/engines/jsrun, and where StepGang puts the ranks when it chooses the nodes.
#include "launcher/engines/jsrun.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/engines/step_gang.h"
#include "tests/support/called_placement.h"

namespace hvd::launch::jsrun_test {

using hvd::test::placed;

namespace {

using Words = std::vector<std::string>;

ReadyMessage agent_on(const std::string& name, Words gpus = {}) {
  ReadyMessage ready;
  ready.host_name = name;
  ready.gpus = std::move(gpus);
  return ready;
}

}  // namespace

TEST_CASE("jsrun starts one agent on each of so many nodes, with all that the job has there") {
  const Placement placement = place({{"c1", "", 0, 2}, {"c2", "", 0, 1}}, 0).value();
  StepOptions options;
  options.agent_path = "/opt/hvdrun-agent";
  options.environment = {"LSB_JOBID=12", "PMIX_RANK=0", "PATH=/bin"};
  CallKey key;
  key.secret.fill(0xab);
  const EngineCommand command = jsrun_command(placement, options, CallPlace{"stack", {"10.0.0.1:5"}}, key);
  CHECK(command.argv == Words{"jsrun", "--nrs", "2", "--rs_per_host", "1", "--tasks_per_rs", "1", "--cpu_per_rs",
                              "ALL_CPUS", "--gpu_per_rs", "ALL_GPUS", "--bind", "none", "/opt/hvdrun-agent", "call",
                              "jsrun", "stack", "10.0.0.1:5"});
  CHECK(command.environment == Words{"LSB_JOBID=12", "PATH=/bin", "HVD_CALL_SECRET=" + call_key_text(key)});
  CHECK(command.input.empty());
}

TEST_CASE("ranks are on the nodes that jsrun chose") {
  const Placement wanted = place({{"c1", "", 0, 2}, {"c2", "", 0, 1}}, 0).value();
  const StepKind kind = jsrun_step();
  SUBCASE("those of the job, in whatever order the agents count") {
    CHECK(placed(place_on_nodes(wanted, kind, false, {agent_on("c2"), agent_on("c1")})) == "c1:2 c2:1 110");
  }
  SUBCASE("others of the job, since not all are needed") {
    CHECK(placed(place_on_nodes(wanted, kind, false, {agent_on("c4"), agent_on("c2")})) == "c4:2 c2:1 001");
  }
  SUBCASE("those of the job, by names of their own") {
    CHECK(placed(place_on_nodes(wanted, kind, true, {agent_on("c1.site", {"a", "b"}), agent_on("c2.site")})) ==
          "c1.site:2 c2.site:1 001");
  }
}

TEST_CASE("an agent of jsrun knows its seat, and leaves jsrun's variables behind") {
  Words environment = {"JSM_NAMESPACE_RANK=1",       "JSM_NAMESPACE_SIZE=2", "JSM_NAMESPACE_LOCAL_RANK=0",
                       "JSM_NAMESPACE_LOCAL_SIZE=1", "PMIX_RANK=1",          "LSB_JOBID=12"};
  const auto seat = seat_from("jsrun", environment);
  REQUIRE(seat.ok());
  CHECK(seat.value().rank == 1);
  CHECK(seat.value().size == 2);
  CHECK(seat.value().local_size == 1);
  leave_engine("jsrun", environment);
  CHECK(environment == Words{"LSB_JOBID=12"});
}

}  // namespace hvd::launch::jsrun_test
