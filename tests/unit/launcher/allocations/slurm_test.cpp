// launcher/allocations/slurm: what Slurm's variables say.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/allocations/allocation.h"

namespace hvd::launch::slurm_test {
namespace {

using Words = std::vector<std::string>;

// Returns "n1:2 n2:1" for the hosts of an allocation, the message of an error, "none" where there is no job.
std::string hosts_in(const Words& environment, int size = 0, bool is_task = false) {
  Surroundings here;
  here.environment = environment;
  here.size = size;
  here.is_task = is_task;
  const auto found = find_slurm(here);
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
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=2(x2),1", "SLURM_NTASKS=5"})) == "n1:2 n2:2 n3:1");
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=2(x2),1", "SLURM_NPROCS=5"})) == "n1:2 n2:2 n3:1");
  CHECK(hosts_in(with({"SLURM_NTASKS_PER_NODE=4", "SLURM_TASKS_PER_NODE=1(x3)"})) == "n1:4 n2:4 n3:4");
  // sbatch -N3 -n5 --ntasks-per-node=4, and -n3: the tasks of a node are then the most that it gets
  CHECK(hosts_in(with({"SLURM_NTASKS_PER_NODE=4", "SLURM_NTASKS=5", "SLURM_TASKS_PER_NODE=2(x2),1"})) ==
        "n1:2 n2:2 n3:1");
  CHECK(hosts_in(with({"SLURM_NTASKS_PER_NODE=4", "SLURM_NTASKS=3", "SLURM_TASKS_PER_NODE=1(x3)"})) ==
        "n1:1 n2:1 n3:1");
  // A step of one task within it (srun --pty bash) has that step's counts.
  CHECK(hosts_in(with({"SLURM_NTASKS_PER_NODE=4", "SLURM_NTASKS=1", "SLURM_TASKS_PER_NODE=1"})) == "n1:4 n2:4 n3:4");
  CHECK(hosts_in(with({"SLURM_NTASKS_PER_NODE=4", "SLURM_NTASKS=2", "SLURM_TASKS_PER_NODE=1(x2)"})) ==
        "n1:4 n2:4 n3:4");
  CHECK(hosts_in(with({}), 5) == "n1:2 n2:2 n3:1");
  CHECK(hosts_in(with({}), 2) == "n1:1 n2:1");
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=2(x3)", "SLURM_NTASKS=6"}), 2) == "n1:2 n2:2 n3:2");
  CHECK(hosts_in({"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=gpu-[08-09],login"}) == "GPUs: gpu-08:1 gpu-09:1 login:1");
}

TEST_CASE("the CPUs of a node are not taken for tasks that nobody has asked for") {
  // salloc -N3 --exclusive, on nodes of 128 cores
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=128(x3)"})) == "GPUs: n1:1 n2:1 n3:1");
  CHECK(hosts_in(with({"SLURM_TASKS_PER_NODE=128(x3)"}), 6) == "n1:2 n2:2 n3:2");
}

TEST_CASE("hvdrun in the shell of srun --pty is there once, whatever the step's tasks are") {
  Words shell = with({"SLURM_STEP_NUM_TASKS=3", "SLURM_PTY_PORT=4711", "SLURM_PROCID=0"});
  CHECK(hosts_in(shell) == "GPUs: n1:1 n2:1 n3:1");
  CHECK(hosts_in(shell, 0, true).find("srun has started hvdrun 3 times") != std::string::npos);  // srun --pty hvdrun
  shell.back() = "SLURM_PROCID=1";
  CHECK(hosts_in(shell).find("srun has started hvdrun 3 times") != std::string::npos);
}

TEST_CASE("a step asks for the GPUs of all tasks, where Slurm would give it those of one") {
  const auto gpus_in = [](const Words& environment) {
    Surroundings here;
    here.environment = with(environment);
    const auto found = find_slurm(here);
    return found.ok() && found.value() ? found.value()->node_gpus + " of " + std::to_string(found.value()->gpus) : "-";
  };
  CHECK(gpus_in({}) == " of 0");
  CHECK(gpus_in({"SLURM_NTASKS_PER_NODE=4", "SLURM_NTASKS=12", "SLURM_GPUS_PER_TASK=2"}) == "8 of 24");
  CHECK(gpus_in({"SLURM_TASKS_PER_NODE=4(x3)", "SLURM_NTASKS=12", "SLURM_GPUS_PER_TASK=a100:1"}) == "a100:4 of 12");
  CHECK(gpus_in({"SLURM_TASKS_PER_NODE=2(x2),1", "SLURM_NTASKS=5", "SLURM_GPUS_PER_TASK=1"}) == " of 5");
  CHECK(gpus_in({"SLURM_NTASKS_PER_NODE=2", "SLURM_NTASKS=6", "SLURM_GPUS_PER_TASK=a100:1,v100:1"}) == " of 0");
  CHECK(gpus_in({"SLURM_NTASKS_PER_NODE=2", "SLURM_NTASKS=6", "SLURM_GPUS_PER_TASK=a100:x"}) == " of 0");
  CHECK(gpus_in({"SLURM_GPUS=12"}) == " of 12");
  CHECK(gpus_in({"SLURM_GPUS=a100:8,v100:4"}) == " of 0");
}

TEST_CASE("an allocation that is half known is refused by the variable's name") {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"SLURM_JOB_ID=12"}, "SLURM_JOB_NODELIST, which names its nodes, is not set"},
      {{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-"}, "SLURM_JOB_NODELIST is 'n[1-'"},
      {{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n1", "SLURM_JOB_NUM_NODES=4"},
       "1 node where SLURM_JOB_NUM_NODES says 4"},
      {with({"SLURM_HET_SIZE=2"}), "SLURM_HET_SIZE=2"},
      {with({"SLURM_TASKS_PER_NODE=2(x2)", "SLURM_NTASKS=4"}), "2 nodes where the job has 3"},
      {with({"SLURM_TASKS_PER_NODE=many", "SLURM_NTASKS=4"}), "SLURM_TASKS_PER_NODE"},
      {with({"SLURM_STEP_NUM_TASKS=4"}), "start it once"},
  };
  for (const auto& [environment, words] : cases) {
    const std::string message = hosts_in(environment);
    CAPTURE(message);
    CHECK(message.find("this is Slurm job 12, but") != std::string::npos);
    CHECK(message.find(words) != std::string::npos);
    CHECK(message.find("-H names hosts") != std::string::npos);
  }
}

}  // namespace hvd::launch::slurm_test
