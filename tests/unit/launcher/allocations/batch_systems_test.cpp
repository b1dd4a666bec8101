// launcher/allocations: PBS, LSF, SGE and Flux, from the variables and files that they give to a job.
#include <unistd.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/allocations/engine_words.h"

namespace hvd::launch::batch_systems_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

TEST_CASE("PBS: a line of the node file is a slot, and this host is known by its own name") {
  EngineJob job({"PBS_JOBID=12.server", "PBS_ENVIRONMENT=PBS_BATCH"}, "n1");
  job.add("PBS_NODEFILE=" + job.file("nodes", "n1.cluster.org\nn1.cluster.org\nn2.cluster.org\nn2.cluster.org\n"));
  CHECK(job.said() == "n1:2 n2.cluster.org:2 (PBS_NODEFILE)");
  CHECK(described(*find_pbs(job.here).value(), 0) ==
        "PBS job 12: 2 nodes (n1 to n2.cluster.org), 4 ranks (PBS_NODEFILE)");
  CHECK(described(*find_pbs(job.here).value(), 3).find("3 ranks") != std::string::npos);
}

TEST_CASE("PBS: where no host has two lines, -np is spread") {
  EngineJob job({"PBS_JOBID=12.server"});
  job.add("PBS_NODEFILE=" + job.file("nodes", "n1\nn2\nn3\n"));
  CHECK(job.said() == "n1:1 n2:1 n3:1 (PBS_NODEFILE)");
  job.here.size = 5;
  CHECK(job.said() == "n1:2 n2:2 n3:1 (-np)");
  job.here.size = 2;
  CHECK(job.said() == "n1:1 n2:1 (-np)");
}

TEST_CASE("on one host alone -np counts, whatever slots the engine gives") {
  EngineJob job({"PBS_JOBID=12.server"});
  job.add("PBS_NODEFILE=" + job.file("nodes", "n1\nn1\n"));
  CHECK(job.said() == "n1:2 (PBS_NODEFILE)");
  job.here.size = 4;
  CHECK(job.said() == "n1:4 (-np)");
}

TEST_CASE("PBS: Torque's file of GPUs says which of each host are the job's") {
  EngineJob job({"PBS_JOBID=12.server"}, "n1");
  job.add("PBS_NODEFILE=" + job.file("nodes", "n1\nn1\na-gpu2\na-gpu2\n"));
  job.add("PBS_GPUFILE=" + job.file("gpus", "n1-gpu0\nn1-gpu3\na-gpu2-gpu1\na-gpu2-gpu0\n"));
  const auto found = launch::find_allocation(job.here, "");
  REQUIRE(found.ok());
  const launch::HostList& hosts = found.value()->hosts;
  CHECK(hosts.at(0).gpus == std::vector<int>{0, 3});
  CHECK(hosts.at(1).gpus == std::vector<int>{1, 0});
  for (const char* const wrong : {"n1\n", "n1-gpu\n", "n1-gpux\n", "n3-gpu0\n", "n1-gpu-1\n"}) {
    CAPTURE(wrong);
    EngineJob odd({"PBS_JOBID=12.server"}, "n1");
    odd.add("PBS_NODEFILE=" + odd.file("nodes", "n1\n"));
    odd.add("PBS_GPUFILE=" + odd.file("gpus", wrong));
    CHECK(odd.says("PBS_GPUFILE"));
  }
  EngineJob without({"PBS_JOBID=12.server"}, "n1");
  without.add("PBS_NODEFILE=" + without.file("nodes", "n1\nn1\n"));
  without.add("PBS_GPUFILE=" + without.file("gpus", ""));
  CHECK(without.said() == "n1:2 (PBS_NODEFILE)");
  without.here.environment.back() = "PBS_GPUFILE=/no/such/file";
  CHECK(without.says("PBS_GPUFILE"));
}

TEST_CASE("PBS: what is known by half is refused by the variable's name") {
  EngineJob job({"PBS_JOBID=12.server"});
  CHECK(job.said() ==
        "this is PBS job 12, but PBS_NODEFILE, which names its nodes, is not set; -H names hosts, and "
        "--engine none leaves PBS aside");
  SUBCASE("no file") {
    job.add("PBS_NODEFILE=/no/such/file");
    CHECK(job.says("PBS_NODEFILE"));
    CHECK(job.says("/no/such/file"));
  }
  SUBCASE("an empty file") {
    job.add("PBS_NODEFILE=" + job.file("nodes", "\n\n"));
    CHECK(job.says("PBS_NODEFILE names a file without a line"));
  }
  SUBCASE("other hosts") {
    job.add("PBS_NODEFILE=" + job.file("nodes", "m1\nm2\nm3\nm4\nm5\n"));
    CHECK(job.says("PBS_NODEFILE names m1, m2, m3, m4, ... and not this host, n1"));
  }
  SUBCASE("a host of another domain is another one") {
    job.here.own_names = {"n1.b.org"};
    job.add("PBS_NODEFILE=" + job.file("nodes", "n1.a.org\n"));
    CHECK(job.says("and not this host, n1.b.org"));
  }
  SUBCASE("no host's name") {
    job.add("PBS_NODEFILE=" + job.file("nodes", "n1\n-oProxyCommand=x\n"));
    CHECK(job.says("PBS_NODEFILE has '-oProxyCommand=x' where a host's name is expected"));
  }
  SUBCASE("Torque counts otherwise") {
    job.add("PBS_NODEFILE=" + job.file("nodes", "n1\nn2\n"));
    job.add("PBS_NP=4");
    CHECK(job.says("PBS_NP says 4 where PBS_NODEFILE has 2"));
  }
  SUBCASE("a count that is none") {
    job.add("PBS_NODEFILE=" + job.file("nodes", "n1\nn2\n"));
    job.add("PBS_NP=many");
    CHECK(job.says("PBS_NP is 'many', expected a number"));
  }
}

TEST_CASE("LSF: the host file or LSB_MCPU_HOSTS, and blaunch where it is") {
  EngineJob job({"LSB_JOBID=34", "LSB_MCPU_HOSTS=n1 2 n2 2 "});
  CHECK(job.said() == "n1:2 n2:2 (LSB_MCPU_HOSTS)");
  job.add("LSB_DJOB_HOSTFILE=" + job.file("hosts", "n1\nn1\nn2\nn2\n"));
  CHECK(job.said() == "n1:2 n2:2 (LSB_DJOB_HOSTFILE)");
  job.program("blaunch", "exit 1");
  CHECK(job.said() == "n1:2 n2:2 (LSB_DJOB_HOSTFILE) by blaunch {host}");
  job.add("PATH=/nowhere");
  job.add("LSF_BINDIR=" + job.folder.path);
  CHECK(job.said() == "n1:2 n2:2 (LSB_DJOB_HOSTFILE) by " + job.folder.path + "/blaunch {host}");
}

TEST_CASE("LSF: no rank belongs on jsrun's launch host") {
  EngineJob job({"LSB_JOBID=34", "LSB_MCPU_HOSTS=batch1 1 c1 4 c2 4", "CSM_ALLOCATION_ID=7"}, "batch1");
  CHECK(job.said() == "c1:4 c2:4 (LSB_MCPU_HOSTS)");
  EngineJob plain({"LSB_JOBID=34", "LSB_MCPU_HOSTS=n1 1 c1 4 c2 4"});
  CHECK(plain.said() == "n1:1 c1:4 c2:4 (LSB_MCPU_HOSTS)");
}

TEST_CASE("LSF: what is known by half is refused by the variable's name") {
  EngineJob job({"LSB_JOBID=34"});
  CHECK(job.says("this is LSF job 34, but neither LSB_DJOB_HOSTFILE nor LSB_MCPU_HOSTS"));
  SUBCASE("a count that is missing") {
    job.add("LSB_MCPU_HOSTS=n1 4 n2");
    CHECK(job.says("LSB_MCPU_HOSTS is 'n1 4 n2', expected hosts and counts"));
  }
  SUBCASE("two lists that differ") {
    job.add("LSB_MCPU_HOSTS=n1 4 n2 4");
    job.add("LSB_DJOB_HOSTFILE=" + job.file("hosts", "n1\nn2\n"));
    CHECK(job.says("LSB_DJOB_HOSTFILE has 2 hosts and 2 slots where LSB_MCPU_HOSTS has 2 and 8"));
  }
  SUBCASE("no such file") {
    job.add("LSB_MCPU_HOSTS=n1 4 n2 4");
    job.add("LSB_DJOB_HOSTFILE=/no/such/file");
    CHECK(job.says("LSB_DJOB_HOSTFILE"));
  }
}

TEST_CASE("SGE: the hosts of a parallel environment, and qrsh where it is") {
  EngineJob job({"JOB_ID=56", "SGE_TASK_ID=undefined", "NSLOTS=3", "NHOSTS=2"});
  job.add("PE_HOSTFILE=" +
          job.file("pe", "n1.cluster 2 all.q@n1.cluster UNDEFINED\nn2.cluster 1 all.q@n2.cluster <NULL>\n"));
  CHECK(job.said() == "n1:2 n2.cluster:1 (PE_HOSTFILE)");
  job.program("qrsh", "exit 1");
  CHECK(job.said() == "n1:2 n2.cluster:1 (PE_HOSTFILE) by qrsh -inherit -V {host}");
  job.add("PATH=/nowhere");
  job.add("SGE_BINARY_PATH=" + job.folder.path);
  CHECK(job.said().ends_with(" by " + job.folder.path + "/qrsh -inherit -V {host}"));
}

TEST_CASE("SGE: two queues of a host are one host") {
  EngineJob job({"JOB_ID=56", "SGE_TASK_ID=undefined", "NSLOTS=4", "NHOSTS=2"});
  job.add("PE_HOSTFILE=" + job.file("pe", "n1 2 a.q@n1 UNDEFINED\nn1 1 b.q@n1 UNDEFINED\nn2 1 a.q@n2 UNDEFINED\n"));
  CHECK(job.said() == "n1:3 n2:1 (PE_HOSTFILE)");
}

TEST_CASE("SGE: a job without a parallel environment is this host alone, unless it has several slots") {
  EngineJob job({"JOB_ID=56", "SGE_TASK_ID=undefined", "NSLOTS=1"});
  CHECK(job.said() == "none");
  CHECK(EngineJob({"JOB_ID=56"}).said() == "none");  // anybody's variable
  job.add("NSLOTS=4");
  CHECK(job.says("this is SGE job 56, but PE_HOSTFILE, which names its hosts, is not set where NSLOTS says 4"));
  job.add("PE_HOSTFILE=" + job.file("pe", "n1 two all.q\n"));
  CHECK(job.says("PE_HOSTFILE has the line 'n1 two all.q', expected a host and its slots"));
  job.add("PE_HOSTFILE=" + job.file("pe", "n1 2 all.q\n"));
  CHECK(job.says("NSLOTS says 4 where PE_HOSTFILE has 2"));
  job.add("NSLOTS=2");
  job.add("NHOSTS=2");
  CHECK(job.says("NHOSTS says 2 where PE_HOSTFILE has 1"));
}

TEST_CASE("Flux: the hosts of an instance of the user's own, and its GPUs") {
  EngineJob job({"FLUX_URI=local:///tmp/flux", "FLUX_ENCLOSING_ID=f7", "SLURM_JOB_ID=1"});
  const auto answers = [](const std::string& owner, const std::string& hosts, const std::string& gpus) {
    return "case \"$*\" in 'getattr security.owner') echo " + owner + ";; 'getattr hostlist') echo '" + hosts +
           "';; 'resource list -s all -n -o {ngpus}') echo " + gpus + ";; *) exit 1;; esac";
  };
  const std::string own = std::to_string(::geteuid());
  job.program("flux", answers(own, "n[1-2]", "8"));
  CHECK(job.said() == "n1:4 n2:4 (GPUs of flux resource list)");
  job.program("flux", answers(own, "n[1-2]", "0"));
  CHECK(job.said() == "n1:1 n2:1 (flux getattr hostlist)");
  job.program("flux", answers(own, "m1", "0"));
  CHECK(job.says("this is Flux job f7, but 'flux getattr hostlist' names m1 and not this host, n1"));
  job.program("flux", "echo broken >&2; exit 1");
  CHECK(job.says("'flux getattr security.owner' does not say its hosts"));
}

TEST_CASE("Flux: the instance of the system is nobody's job, and a task of several is refused") {
  EngineJob job({"FLUX_URI=local:///run/flux/local"});
  job.program("flux", "echo 987654");
  CHECK(job.said() == "none");
  job.add("FLUX_TASK_RANK=0");
  job.add("FLUX_JOB_SIZE=1");
  CHECK(job.said() == "none");
  job.add("FLUX_JOB_NNODES=2");
  CHECK(job.says("FLUX_JOB_NNODES=2"));
  CHECK(job.says("start it once, by flux batch or flux alloc"));
}

TEST_CASE("an engine that the user insists on must be there") {
  const EngineJob job({"HOME=/root"});
  CHECK(job.said() == "none");
  CHECK(job.said("pbs") ==
        "pbs was asked for, but PBS_JOBID is not set; run hvdrun within a job of qsub, or do not ask for it");
  for (const std::string& word : engine_words()) {
    CHECK(job.said(word).find(word + " was asked for, but ") == 0);
  }
}

}  // namespace hvd::launch::batch_systems_test
