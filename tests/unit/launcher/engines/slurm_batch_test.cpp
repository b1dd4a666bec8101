// launcher/engines/slurm_batch: the script of a job, and what Slurm's commands say of it.
#include "launcher/engines/slurm_batch.h"

#include <doctest/doctest.h>

namespace hvd::launch::slurm_batch_test {
namespace {

SlurmBatch batch() {
  SlurmBatch job;
  job.name = "train";
  job.nodes = 2;
  job.ranks = 3;
  job.cwd = "/home/a b";
  job.output = "/state/stdout.txt";
  job.options = {"--partition=gpu", "--time=1:00:00"};
  job.command = {"/opt/hvdrun", "--engine=slurm", "python", "it's.py"};
  return job;
}

}  // namespace

TEST_CASE("a script asks for nodes and tasks, and its body is one exec") {
  CHECK(batch_script(batch()).value() ==
        "#!/bin/sh\n"
        "#SBATCH --job-name=train\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --ntasks-per-node=2\n"
        "#SBATCH --signal=B:TERM@70\n"
        "#SBATCH --no-requeue\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --chdir=\"/home/a b\"\n"
        "#SBATCH --output=\"/state/stdout.txt\"\n"
        "#SBATCH --partition=gpu\n"
        "#SBATCH --time=1:00:00\n"
        "exec /opt/hvdrun --engine=slurm python 'it'\\''s.py'\n");
}

TEST_CASE("Slurm chooses the nodes of ranks that are not spread by the user") {
  SlurmBatch job = batch();
  job.nodes = 0;
  CHECK(batch_script(job).value().find("#SBATCH --ntasks=3\n") != std::string::npos);
  job.ranks = 0;
  CHECK(batch_script(job).value().find("#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n") != std::string::npos);
}

TEST_CASE("a job whose ranks may be restarted survives a node, and may be queued again") {
  SlurmBatch job = batch();
  job.is_elastic = job.may_begin_anew = true;
  job.grace = std::chrono::seconds(30);
  const std::string script = batch_script(job).value();
  CHECK(script.find("#SBATCH --signal=B:TERM@90\n#SBATCH --requeue\n#SBATCH --no-kill\n") != std::string::npos);
}

TEST_CASE("what cannot stand in a script is refused") {
  SlurmBatch job = batch();
  job.options = {"--comment=a\nrm -rf /"};
  CHECK(batch_script(job).error().message().find("is no option of sbatch on one line") != std::string::npos);
  job.options = {"partition=gpu"};
  CHECK(batch_script(job).error().message().find("--sbatch=--partition=gpu") != std::string::npos);
  for (const char* option : {"--array=0-3", "--array", "-a0-3", "--array 0-3", "-p gpu -a 0-3"}) {
    job.options = {option};
    CHECK(batch_script(job).error().message().find("makes several jobs of one") != std::string::npos);
  }
  for (const char* option : {"--clusters=b", "-Mb", "--qos=high --clusters b"}) {
    job.options = {option};
    CHECK(batch_script(job).error().message().find("gives the job to another cluster") != std::string::npos);
  }
  for (const char* option : {"--wait", "-W"}) {
    job.options = {option};
    CHECK(batch_script(job).error().message().find("hvdrun wait waits for a job") != std::string::npos);
  }
  job.options = {"--partition=gpu --comment='as -a says'"};
  CHECK(batch_script(job).ok());
  job = batch();
  job.cwd = "/home/\"x";
  CHECK(batch_script(job).error().message().find("cannot stand in a script") != std::string::npos);
}

TEST_CASE("sbatch prints a number, perhaps with a cluster or after a warning") {
  CHECK(submitted_number("12\n").value() == "12");
  CHECK(submitted_number("sbatch: warning: can't honor\n12;lab\n").value() == "12");
  CHECK(submitted_number("").error().message().find("no job's number") != std::string::npos);
}

TEST_CASE("what squeue, scontrol and sacct say of a job") {
  const auto all = read_squeue("slurm_load_jobs: warning\n12|RUNNING|n[1-2]\n13|PENDING|\n14|NODE_FAIL|n3\n");
  REQUIRE(all.size() == 3);
  CHECK(all[0] == SlurmWord{"12", "RUNNING", "n[1-2]", std::nullopt});
  CHECK(state_of(all[0]) == SlurmState::kRunning);
  CHECK(state_of(all[1]) == SlurmState::kPending);
  CHECK(state_of(all[2]) == SlurmState::kFailed);
  CHECK(state_of({"1", "COMPLETED", "", 0}) == SlurmState::kCompleted);

  const auto said = read_scontrol(
      "JobId=12 JobName=x JobState=FAILED Reason=NonZeroExitCode ExitCode=7:0 ReqNodeList=(null) NodeList=n[1-2]\n");
  CHECK(said == SlurmWord{"12", "FAILED", "n[1-2]", 7});
  CHECK(read_scontrol("JobId=12 JobState=FAILED ExitCode=0:9")->exit_code == 137);
  CHECK(!read_scontrol("slurm_load_jobs error: Invalid job id specified"));
  CHECK(read_sacct("12|CANCELLED by 0|0:15\n") == SlurmWord{"12", "CANCELLED", "", 143});
  CHECK(!read_sacct("Slurm accounting storage is disabled\n"));
}

TEST_CASE("a job has ended only where Slurm says one of the words for an end") {
  const auto state = [](const char* word) { return state_of({"1", word, "", std::nullopt}); };
  for (const char* held : {"RESV_DEL_HOLD", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "POWER_UP_NODE"}) {
    CHECK_MESSAGE(state(held) == SlurmState::kPending, held);
  }
  for (const char* there : {"COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "NEW_WORD"}) {
    CHECK_MESSAGE(state(there) == SlurmState::kRunning, there);
  }
  for (const char* end : {"BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
                          "REVOKED", "TIMEOUT"}) {
    CHECK_MESSAGE(state(end) == SlurmState::kFailed, end);
  }
}

}  // namespace hvd::launch::slurm_batch_test
