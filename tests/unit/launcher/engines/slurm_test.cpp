// launcher/engines/slurm, and where SlurmGang puts the ranks.
#include "launcher/engines/slurm.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/engines/slurm_gang.h"
#include "tests/support/called_placement.h"

using namespace hvd;
using namespace hvd::launch;
using hvd::test::placed;

namespace {

using Words = std::vector<std::string>;

// Returns "n1:2 n2:1" for the hosts of an allocation, the message of an error, "none" where there is no job.
std::string hosts_in(const Words& environment, int size = 0) {
  const auto found = slurm_allocation(environment, size);
  if (!found.ok()) {
    return found.error().message();
  }
  if (!found.value()) {
    return "none";
  }
  std::string text = found.value()->slots_are_gpus ? "GPUs:" : "";
  for (const HostSpec& host : found.value()->hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.slots);
  }
  return text;
}

Words with(Words more) {
  Words all = {"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_JOB_NUM_NODES=3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

ReadyMessage agent_on(const std::string& name, Words gpus = {}) {
  ReadyMessage ready;
  ready.host_name = name;
  ready.gpus = std::move(gpus);
  return ready;
}

}  // namespace

TEST_CASE("counts of tasks are read as Slurm writes them") {
  CHECK(expand_task_counts("2(x3),1").value() == std::vector<int>{2, 2, 2, 1});
  CHECK(expand_task_counts("4").value() == std::vector<int>{4});
  for (const char* text : {"", "2(x3", "2(x)", "(x3)", "2,", "0", "2(x0)", "a", "2(x9999999)", "-1", "2(3)"}) {
    CAPTURE(text);
    CHECK(!expand_task_counts(text).ok());
  }
}

TEST_CASE("an allocation gives its nodes, with the ranks that Slurm or the user speaks of") {
  CHECK(hosts_in({"HOME=/root"}) == "none");
  CHECK(hosts_in(with({})) == "GPUs: n1:1 n2:1 n3:1");
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=1(x3)"})) == "GPUs: n1:1 n2:1 n3:1");
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=2(x2),1"})) == "n1:2 n2:2 n3:1");
  CHECK(hosts_in(with({"SLURM_NTASKS_PER_NODE=4", "SLURM_TASKS_PER_NODE=1(x3)"})) == "n1:4 n2:4 n3:4");
  CHECK(hosts_in(with({}), 5) == "n1:2 n2:2 n3:1");
  CHECK(hosts_in(with({}), 2) == "n1:1 n2:1");
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=2(x3)"}), 2) == "n1:2 n2:2 n3:2");
  CHECK(hosts_in({"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=gpu-[08-09],login"}) == "GPUs: gpu-08:1 gpu-09:1 login:1");
}

TEST_CASE("an allocation that is half known is refused by the variable's name") {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"SLURM_JOB_ID=12"}, "SLURM_JOB_NODELIST, which names its nodes, is not set"},
      {{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-"}, "SLURM_JOB_NODELIST is 'n[1-'"},
      {{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n1", "SLURM_JOB_NUM_NODES=4"},
       "1 node where SLURM_JOB_NUM_NODES says 4"},
      {with({"SLURM_HET_SIZE=2"}), "SLURM_HET_SIZE=2"},
      {with({"SLURM_TASKS_PER_NODE=2(x2)"}), "2 nodes where the job has 3"},
      {with({"SLURM_TASKS_PER_NODE=many"}), "SLURM_TASKS_PER_NODE"},
      {with({"SLURM_STEP_NUM_TASKS=4"}), "start it once"},
  };
  for (const auto& [environment, words] : cases) {
    const std::string message = hosts_in(environment);
    CAPTURE(message);
    CHECK(message.find("Slurm's job 12") != std::string::npos);
    CHECK(message.find(words) != std::string::npos);
    CHECK(message.find("-H names hosts") != std::string::npos);
  }
}

TEST_CASE("srun starts one agent on each node, and none of the job's variables makes it more") {
  const Placement placement = place({{"n1", "", 0, 2}, {"n3", "", 0, 1}}, 0).value();
  SrunOptions options;
  options.agent_path = "/opt/hvdrun-agent";
  options.environment = with({"SLURM_NTASKS=6", "SLURM_CPU_BIND_TYPE=cores", "SLURM_EXPORT_ENV=NONE", "PATH=/bin"});
  CallKey key;
  key.secret.fill(0xab);
  const EngineCommand command = srun_command(placement, options, CallPlace{"stack", {"10.0.0.1:5"}}, key);
  const auto has = [&command](const std::string& word) {
    return std::find(command.argv.begin(), command.argv.end(), word) != command.argv.end();
  };
  CHECK(has("--nodes=2"));
  CHECK(has("--ntasks=2"));
  CHECK(has("--nodelist=n1,n3"));
  CHECK(Words(command.argv.end() - 5, command.argv.end()) ==
        Words{"/opt/hvdrun-agent", "call", "slurm", "stack", "10.0.0.1:5"});
  CHECK(command.environment == with({"PATH=/bin"}));
  CHECK(command.input == call_key_text(key) + "\n");
  for (const std::string& word : command.argv) {
    CHECK(word.find("abab") == std::string::npos);
  }
}

TEST_CASE("what srun says becomes a code and an advice") {
  CHECK(srun_failure("srun: error: Unable to confirm allocation for job 99: Invalid job id specified").code ==
        Code::kInvalid);
  CHECK(srun_failure("slurmstepd: error: execve(): /x/hvdrun-agent: No such file or directory").code == Code::kSystem);
  CHECK(srun_failure("something new").advice.empty());
}

TEST_CASE("ranks are placed by the nodes' names, in whatever order the agents count") {
  const Placement wanted = place({{"n1", "", 0, 2}, {"n2", "", 0, 1}}, 0).value();
  CHECK(placed(place_on_nodes(wanted, false, {agent_on("n2"), agent_on("n1")})) == "n1:2 n2:1 110");
  CHECK(placed(place_on_nodes(wanted, true, {agent_on("n1", {"a", "b", "c"}), agent_on("n2")})) == "n1:3 n2:1 0001");
  CHECK(placed(place_on_nodes(wanted, false, {agent_on("n1"), agent_on("n7")})).find("no agent on n2") !=
        std::string::npos);
}

TEST_CASE("an agent of Slurm knows its seat and its node, and leaves the step's variables behind") {
  Words environment = {"SLURM_PROCID=2",  "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=0", "SLURMD_NODENAME=n3",
                       "SLURM_JOB_ID=12", "SLURM_NTASKS=4",         "PATH=/bin"};
  const auto seat = seat_from("slurm", environment);
  REQUIRE(seat.ok());
  CHECK(seat.value().rank == 2);
  CHECK(seat.value().size == 4);
  CHECK(node_name_from("slurm", environment) == "n3");
  leave_engine("slurm", environment);
  CHECK(environment == Words{"SLURM_JOB_ID=12", "PATH=/bin"});
}
