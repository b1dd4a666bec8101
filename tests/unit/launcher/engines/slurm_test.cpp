// launcher/engines/slurm, and where StepGang puts the ranks.
#include "launcher/engines/slurm.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/engines/step_gang.h"
#include "launcher/job/host_list.h"
#include "tests/support/called_placement.h"

namespace hvd::launch::slurm_engine_test {

using hvd::test::placed;

namespace {

using Words = std::vector<std::string>;

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

TEST_CASE("srun starts one agent on each node, and none of the job's variables makes it more") {
  const Placement placement = place({{"n1", "", 0, 2}, {"n3", "", 0, 1}}, 0).value();
  StepOptions options;
  options.agent_path = "/opt/hvdrun-agent";
  options.environment =
      with({"SLURM_NTASKS=6", "SLURM_CPU_BIND_TYPE=cores", "SLURM_EXPORT_ENV=NONE", "PATH=/bin",
            "SLURM_NTASKS_PER_GPU=1", "SRUN_CPUS_PER_TASK=8", "SLURM_THREADS_PER_CORE=1", "SLURM_EXCLUSIVE=1"});
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
    CHECK(!word.starts_with("--gpus"));
  }
  options.node_gpus = "a100:8";
  const EngineCommand asking = srun_command(placement, options, CallPlace{"stack", {"10.0.0.1:5"}}, key);
  CHECK(std::count(asking.argv.begin(), asking.argv.end(), "--gpus-per-node=a100:8") == 1);
}

TEST_CASE("nodes that are too many for one word stand in a file") {
  const Placement placement = place(parse_host_list("node[00001-12000]").value(), 12'000).value();
  const EngineCommand command = srun_command(placement, {}, CallPlace{"stack", {}}, CallKey{});
  CHECK(std::count(command.argv.begin(), command.argv.end(), "--nodelist=/HOSTS") == 1);
  CHECK(command.hosts.starts_with("node00001\nnode00002\n"));
  CHECK(command.hosts.ends_with("node12000\n"));
  const auto is_too_long = [](const std::string& word) { return word.size() > 128 * 1024; };
  CHECK(std::none_of(command.argv.begin(), command.argv.end(), is_too_long));
}

TEST_CASE("an engine reads the file of hosts while it runs") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  EngineCommand command;
  command.name = "cat";
  command.argv = {"/bin/sh", "-c", "cat ${1#--nodelist=}", "sh", "--nodelist=" + std::string(kHostsFile)};
  command.hosts = "n1\nn2\n";
  command.failure_in = srun_failure;
  Engine engine(*loop, command);
  Words lines;
  Engine::Handlers handlers;
  handlers.on_line = [&lines](const std::string& line) { lines.push_back(line); };
  handlers.on_over = [&loop](const Error&) { loop->stop(); };
  REQUIRE(engine.start(std::move(handlers)).ok());
  loop->after(std::chrono::minutes(1), [&loop] { loop->stop(); });
  CHECK(loop->run().ok());
  CHECK(lines == Words{"n1", "n2"});
}

TEST_CASE("what srun says becomes a code and an advice") {
  CHECK(srun_failure("srun: error: Unable to confirm allocation for job 99: Invalid job id specified").code ==
        Code::kInvalid);
  CHECK(srun_failure("slurmstepd: error: execve(): /x/hvdrun-agent: No such file or directory").code == Code::kSystem);
  CHECK(srun_failure("something new").advice.empty());
}

TEST_CASE("why Slurm ends a step is read from what srun says") {
  for (const char* line :
       {"slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-27T07:12:35 DUE TO TIME LIMIT ***",
        "srun: error: Node failure on n4"}) {
    CAPTURE(line);
    CHECK(slurm_end_reason(line) == EndReason{std::string(line) + "; scontrol show job says more", true});
  }
  for (const char* line :
       {"slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-27T07:12:35 ***",
        "slurmstepd-n1: error: *** STEP 4.0 ON n1 FAILED (non-zero exit code or other failure mode) ***"}) {
    CAPTURE(line);
    CHECK(slurm_end_reason(line) == EndReason{std::string(line) + "; scontrol show job says more", false});
  }
  for (const char* line : {"slurmstepd-n2: error: StepId=4.0 exceeded memory limit (18 > 10), being killed",
                           "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0. Some of the step tasks have "
                           "been OOM Killed.",
                           "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4.0."}) {
    CAPTURE(line);
    CHECK(slurm_end_reason(line) ==
          EndReason{std::string(line) + "; ask Slurm for more memory, as in --mem=64G", true});
  }
  for (const char* line : {"srun: got SIGCONT", "srun: Job step aborted: Waiting up to 32 seconds", ""}) {
    CAPTURE(line);
    CHECK(slurm_end_reason(line) == EndReason{});
  }
}

TEST_CASE("the node that says why Slurm ends a step is believed, whichever node speaks first") {
  const EndReason nothing;
  const EndReason ended{"*** STEP 4.0 ON n1 CANCELLED ***", false};
  const EndReason memory{"exceeded memory limit", true};
  CHECK(ended.says_more_than(nothing));
  CHECK(memory.says_more_than(ended));
  CHECK_FALSE(ended.says_more_than(memory));
  CHECK_FALSE(ended.says_more_than(ended));
  CHECK_FALSE(memory.says_more_than(EndReason{"Node failure on n4", true}));
  CHECK_FALSE(nothing.says_more_than(nothing));
}

TEST_CASE("ranks are placed by the nodes' names, in whatever order the agents count") {
  const Placement wanted = place({{"n1", "", 0, 2}, {"n2", "", 0, 1}}, 0).value();
  CHECK(placed(place_on_nodes(wanted, slurm_step(), false, {agent_on("n2"), agent_on("n1")})) == "n1:2 n2:1 110");
  CHECK(placed(place_on_nodes(wanted, slurm_step(), true, {agent_on("n1", {"a", "b", "c"}), agent_on("n2")})) ==
        "n1:3 n2:1 0001");
  CHECK(placed(place_on_nodes(wanted, slurm_step(), false, {agent_on("n1"), agent_on("n7")})).find("no agent on n2") !=
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
  CHECK(environment == Words{"SLURMD_NODENAME=n3", "SLURM_JOB_ID=12", "PATH=/bin"});
}

}  // namespace hvd::launch::slurm_engine_test
