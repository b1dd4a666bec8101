// launcher/allocations: clouds and operators of Kubernetes, from the variables that they give to each node.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/allocations/engine_words.h"

namespace hvd::launch::clouds_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

TEST_CASE("SageMaker: hosts in order, a rank for each GPU, and hvdrun on the first alone") {
  EngineJob job({"TRAINING_JOB_NAME=fit", R"(SM_HOSTS=["algo-2","algo-1"])", "SM_CURRENT_HOST=algo-1", "SM_NUM_GPUS=4"},
                "algo-1");
  CHECK(job.said() == "algo-1:4 algo-2:4 (SM_NUM_GPUS)");
  job.add("SM_NUM_GPUS=0");
  CHECK(job.said() == "algo-1:1 algo-2:1 (SM_HOSTS)");
  job.add("SM_CURRENT_HOST=algo-2");
  CHECK(job.says("this is SageMaker job fit, but SM_CURRENT_HOST is algo-2: run hvdrun on algo-1 alone"));
  job.add("SM_CURRENT_HOST=algo-7");
  CHECK(job.says("SM_HOSTS does not name SM_CURRENT_HOST, algo-7"));
  job.add("SM_CURRENT_HOST=");
  CHECK(job.says("SM_CURRENT_HOST, which tells its hosts apart, is not set"));
  job.add("SM_HOSTS=algo-1");
  CHECK(job.says("SM_HOSTS"));
}

TEST_CASE("SageMaker: a container without its toolkit has a file") {
  EngineJob job({"TRAINING_JOB_NAME=fit"}, "algo-1");
  job.here.cloud_file = "/no/such/file";
  CHECK(job.says("TRAINING_JOB_NAME names a job, but its description"));
  job.here.cloud_file = job.file("resourceconfig.json", R"({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})");
  CHECK(job.said() == "algo-1:1 algo-2:1 (resourceconfig.json)");
  job.here.cloud_file = job.file("resourceconfig.json", R"({"current_host": "algo-1"})");
  CHECK(job.says("resourceconfig.json has no list of hosts"));
}

TEST_CASE("SkyPilot and dstack: a list of addresses, and hvdrun on node 0 alone") {
  EngineJob sky({"SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=2",
                 "SKYPILOT_NUM_GPUS_PER_NODE=8"},
                "head");
  CHECK(sky.said() == "head:8 10.0.0.2:8 (SKYPILOT_NUM_GPUS_PER_NODE)");
  sky.add("SKYPILOT_NUM_NODES=3");
  CHECK(sky.says("SKYPILOT_NUM_NODES says 3 where SKYPILOT_NODE_IPS has 2"));
  sky.add("SKYPILOT_NUM_NODES=2");
  sky.add("SKYPILOT_NODE_RANK=1");
  CHECK(sky.says("SKYPILOT_NODE_RANK is 1: run hvdrun on node 0 alone"));
  sky.add("SKYPILOT_NODE_RANK=");
  CHECK(sky.says("SKYPILOT_NODE_RANK, which tells its nodes apart, is not set"));
  sky.add("SKYPILOT_NODE_IPS=");
  CHECK(sky.says("SKYPILOT_NODE_IPS is not set where SKYPILOT_NUM_NODES says 2"));

  const EngineJob stack({"DSTACK_NODES_IPS=10.0.0.1\n10.0.0.2", "DSTACK_NODE_RANK=0", "DSTACK_NODES_NUM=2"});
  CHECK(stack.said() == "n1:1 10.0.0.2:1 (DSTACK_NODES_IPS)");
}

TEST_CASE("Azure: the host list of a task of several nodes") {
  EngineJob job({"AZUREML_RUN_ID=run_1", "AZ_BATCH_HOST_LIST=10.0.0.1,10.0.0.2", "AZUREML_NODE_COUNT=2"});
  CHECK(job.said() == "n1:1 10.0.0.2:1 (AZ_BATCH_HOST_LIST)");
  job.here.size = 8;
  CHECK(job.said() == "n1:4 10.0.0.2:4 (-np)");
  job.add("AZ_BATCH_IS_CURRENT_NODE_MASTER=false");
  CHECK(job.says("run hvdrun on the master node alone"));
  job.add("AZ_BATCH_IS_CURRENT_NODE_MASTER=true");
  job.add("NODE_RANK=1");
  CHECK(job.says("NODE_RANK is 1"));
  job.add("AZ_BATCH_HOST_LIST=");
  CHECK(job.says("AZ_BATCH_HOST_LIST, which names its nodes, is not set where AZUREML_NODE_COUNT says 2"));
  job.add("AZUREML_NODE_COUNT=1");
  CHECK(job.said() == "none");
}

TEST_CASE("Vertex AI: the first two pools are the nodes") {
  const std::string pools =
      R"("cluster":{"workerpool0":["chief-0:2222"],"workerpool1":["work-0:2222","work-1:2222"],"workerpool3":["eval-0:2222"]})";
  EngineJob job({"CLOUD_ML_JOB_ID=9", "CLUSTER_SPEC={" + pools + R"(,"task":{"type":"workerpool0","index":0}})"},
                "gke-x");
  job.here.own_names.emplace_back("10.0.0.9");
  CHECK(job.said() == "gke-x:1 work-0:1 work-1:1 (CLUSTER_SPEC)");
  job.add("CLUSTER_SPEC={" + pools + R"(,"task":{"type":"workerpool1","index":1}})");
  CHECK(job.says("CLUSTER_SPEC says that this is workerpool1 1: run hvdrun on workerpool0 0 alone"));
  job.add("CLUSTER_SPEC={" + pools + "}");
  CHECK(job.says("CLUSTER_SPEC does not have 'cluster' and 'task'"));
  job.add("CLUSTER_SPEC={");
  CHECK(job.says("this is Vertex AI job 9, but CLUSTER_SPEC"));
}

TEST_CASE("LeaderWorkerSet: workers' names follow from the leader's") {
  EngineJob job({"LWS_LEADER_ADDRESS=set-0.set.space", "LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=0"}, "set-0");
  CHECK(job.said() == "set-0:1 set-0-1.set.space:1 set-0-2.set.space:1 (LWS_GROUP_SIZE)");
  job.add("LWS_WORKER_INDEX=2");
  CHECK(job.says("LWS_WORKER_INDEX is 2: run hvdrun on node 0 alone"));
  job.add("LWS_GROUP_SIZE=");
  CHECK(job.says("LWS_GROUP_SIZE, which counts its pods, is not set"));
}

TEST_CASE("Volcano: the pods of its one task; of several the user says which") {
  EngineJob job({"VC_WORKER_HOSTS=job-worker-0.job,job-worker-1.job", "VC_WORKER_NUM=2", "VC_TASK_INDEX=0"},
                "job-worker-0");
  CHECK(job.said() == "job-worker-0:1 job-worker-1.job:1 (VC_WORKER_HOSTS)");
  job.add("VC_WORKER_NUM=3");
  CHECK(job.says("VC_WORKER_NUM says 3 where VC_WORKER_HOSTS has 2"));
  job.add("VC_TASK_INDEX=1");
  job.add("VC_WORKER_NUM=2");
  CHECK(job.says("VC_TASK_INDEX is 1"));
  job.add("VC_MASTER_HOSTS=job-master-0.job");
  CHECK(job.says(R"(say which, as in -H "$VC_WORKER_HOSTS")"));
}

}  // namespace hvd::launch::clouds_test
