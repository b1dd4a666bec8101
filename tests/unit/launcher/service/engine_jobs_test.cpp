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
  job.properties = "{}";
  job.output = "/runs/" + number;
  job.created_ms = 1000;
  return job;
}

// Returns a job that the engine has taken.
JobRecord added(EngineJobs& jobs, const std::string& name, const std::string& number) {
  JobRecord job = job_of(name, number);
  REQUIRE(jobs.add(job, "slurm", true).ok());
  REQUIRE(jobs.set_number(job, number).ok());
  return job;
}

// Returns a job "train" of the service's own, on a cluster that is there from now on.
JobRecord job_of_cluster(JobStore& store) {
  Cluster cluster;
  cluster.name = "c";
  cluster.hosts = {{"a", "", 0, 1}};
  REQUIRE(store.clusters().add(cluster).ok());
  JobRecord job;
  job.name = "train";
  job.cluster = cluster.name;
  return job;
}

}  // namespace

TEST_CASE("a job of an engine is found by its name and number, and what the engine says is kept") {
  const test::Folder folder;
  const StateDir dir = StateDir::open(folder.path).value();
  REQUIRE(JobStore::open(dir, [] { return std::int64_t{1}; }).ok());
  EngineJobs jobs = EngineJobs::open(dir).value();
  added(jobs, "train", "12");
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
  REQUIRE(jobs.remove(again).ok());
  CHECK(!jobs.find("train").value());
}

TEST_CASE("a job has its name before the engine has taken it, and its number then") {
  const test::Folder folder;
  const StateDir dir = StateDir::open(folder.path).value();
  REQUIRE(JobStore::open(dir, [] { return std::int64_t{1}; }).ok());
  EngineJobs jobs = EngineJobs::open(dir).value();
  JobRecord job = job_of("train", "12");
  REQUIRE(jobs.add(job, "slurm", true).ok());
  CHECK(engine_number(job).empty());
  CHECK(engine_number(jobs.find("train").value().value()).empty());
  JobRecord other = job_of("train", "13");
  REQUIRE(jobs.add(other, "slurm", false).ok());
  CHECK(other.name == "train-2");
  REQUIRE(jobs.set_number(job, "12").ok());
  CHECK(engine_number(job) == "12");
  CHECK(jobs.again(job).value()->engine_job == "slurm:12");

  // Somebody has taken a submission that took long for one that had ended.
  JobRecord late = job_of("late", "");
  REQUIRE(jobs.add(late, "slurm", true).ok());
  JobRecord ended = late;
  ended.state = ExecutionState::kFailed;
  ended.status = 243;
  ended.error = {"JobFailed", "it has no number of Slurm's", ""};
  REQUIRE(jobs.update(ended).ok());
  REQUIRE(jobs.set_number(late, "20").ok());
  const JobRecord numbered = jobs.find("slurm:20").value().value();
  CHECK(numbered.state == ExecutionState::kQueued);
  CHECK(numbered.status == 0);
  CHECK(numbered.error.code.empty());

  // The engine counts anew, as after its state was lost.
  REQUIRE(jobs.set_number(other, "12").ok());
  CHECK(jobs.find("slurm:12").value()->name == "train-2");
  CHECK(engine_number(jobs.again(job).value().value()).empty());
}

TEST_CASE("names of the engine's jobs and of the service's are one set") {
  const test::Folder folder;
  const StateDir dir = StateDir::open(folder.path).value();
  JobStore store = JobStore::open(dir, [] { return std::int64_t{1}; }).value();
  EngineJobs jobs = EngineJobs::open(dir).value();
  added(jobs, "train", "12");
  JobRecord second = job_of("train", "13");
  CHECK(jobs.add(second, "slurm", true).error().message().find("there is a job 'train' already") != std::string::npos);
  JobRecord own = job_of_cluster(store);
  own.uuid = "u";
  CHECK(!store.add_job(own, true).ok());
  CHECK(store.add_job(own, false).value().name == "train-2");
  REQUIRE(jobs.add(second, "slurm", false).ok());
  CHECK(second.name == "train-3");
}

TEST_CASE("a job has a name also where more than a hundred of it are taken, and nearly all by an engine") {
  const test::Folder folder;
  const StateDir dir = StateDir::open(folder.path).value();
  JobStore store = JobStore::open(dir, [] { return std::int64_t{1}; }).value();
  EngineJobs jobs = EngineJobs::open(dir).value();
  added(jobs, "train", "1");
  for (int number = 2; number <= 101; ++number) {
    added(jobs, "train-" + std::to_string(number), std::to_string(number));
  }
  JobRecord own = job_of_cluster(store);
  for (const char* name : {"train-102", "train-103"}) {
    own.uuid = name;
    CHECK(store.add_job(own, false).value().name == name);
  }
}

}  // namespace hvd::launch::engine_jobs_test
