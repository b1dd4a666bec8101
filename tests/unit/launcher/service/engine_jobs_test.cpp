// launcher/service/engine_jobs: records of jobs that an engine runs.
#include "launcher/service/engine_jobs.h"

#include <doctest/doctest.h>

#include "launcher/service/job_store.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::engine_jobs_test {
namespace {

JobRecord job_of(const std::string& name, const std::string& number) {
  JobRecord job;
  job.name = name;
  job.uuid = "uuid-" + number;
  job.engine_job = "slurm:" + number;
  job.properties = "{}";
  job.output = "/runs/" + number;
  job.created_ms = 1000;
  return job;
}

}  // namespace

TEST_CASE("a job of an engine is found by its name and number, and what the engine says is kept") {
  const test::Folder folder;
  const StateDir dir = StateDir::open(folder.path).value();
  REQUIRE(JobStore::open(dir, [] { return std::int64_t{1}; }).ok());
  EngineJobs jobs = EngineJobs::open(dir).value();
  REQUIRE(jobs.add(job_of("train", "12")).ok());
  JobRecord job = jobs.find("train").value().value();
  CHECK(job.engine_job == "slurm:12");
  CHECK(job.cluster == "slurm");
  CHECK(job.state == ExecutionState::kQueued);
  job.state = ExecutionState::kFailed;
  job.exit_code = 7;
  job.status = 7;
  job.error = {"JobFailed", "Slurm says FAILED", ""};
  job.nodes = {{"n1", ""}, {"n2", ""}};
  REQUIRE(jobs.update(job).ok());
  const JobRecord again = jobs.find("slurm:12").value().value();
  CHECK(again.exit_code == 7);
  CHECK(again.error.message == "Slurm says FAILED");
  CHECK(again.nodes.size() == 2);
  CHECK(record_json(again).find("\"id\": \"slurm:12\"") != std::string::npos);
  REQUIRE(jobs.remove("slurm:12").ok());
  CHECK(!jobs.find("train").value());
}

TEST_CASE("names of the engine's jobs and of the service's are one set") {
  const test::Folder folder;
  const StateDir dir = StateDir::open(folder.path).value();
  JobStore store = JobStore::open(dir, [] { return std::int64_t{1}; }).value();
  EngineJobs jobs = EngineJobs::open(dir).value();
  REQUIRE(jobs.add(job_of("train", "12")).ok());
  CHECK(jobs.free_name("train", false).value() == "train-2");
  CHECK(jobs.free_name("train", true).error().message().find("there is a job 'train' already") != std::string::npos);
  Cluster cluster;
  cluster.name = "c";
  cluster.hosts = {{"a", "", 0, 1}};
  REQUIRE(store.clusters().add(cluster).ok());
  JobRecord own;
  own.name = "train";
  own.uuid = "u";
  own.cluster = "c";
  CHECK(!store.add_job(own, true).ok());
  CHECK(store.add_job(own, false).value().name == "train-2");
  CHECK(jobs.free_name("train", false).value() == "train-3");
}

}  // namespace hvd::launch::engine_jobs_test
