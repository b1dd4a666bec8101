#include "launcher/service/job_record.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/report/listing.h"

namespace hvd::launch::job_record_test {

TEST_CASE("a part of a record is found by its path") {
  const std::string json = R"({"a": {"b": [{"c": 1}, "text"]}, "none": null, "flag": true})";
  CHECK(json_field(json, "a.b.0.c") == "1");
  CHECK(json_field(json, "a.b.1") == "text");
  CHECK(json_field(json, "none") == "");
  CHECK(json_field(json, "flag") == "true");
  for (const char* path : {"", "x", "a.b.2", "a.b.-1", "a.b.c", "a..b", "a.b.0.c.d", "."}) {
    CHECK(!json_field(json, path).has_value());
  }
  CHECK(!json_field("no json", "a").has_value());
}

TEST_CASE("a job that gets another name has one that its supervisor takes") {
  JobRecord job;
  job.name = std::string(64, '7');
  job.segment = "a/jobs/" + job.name + "/uuid";
  rename_job(job, "job-" + job.name);
  CHECK(job.name == "job-" + std::string(60, '7'));
  CHECK(job.segment == "a/jobs/" + job.name + "/uuid");
}

TEST_CASE("times are in UTC as ISO 8601 has them") {
  CHECK(utc_text(0).empty());
  CHECK(utc_text(1'531'953'688'000) == "2018-07-18T22:41:28+00:00");
}

TEST_CASE("what a job prints is in one file, or in one of each process") {
  JobRecord job;
  job.tool = "horovod";
  CHECK(default_file(job, false) == "stdout.txt");
  CHECK(printed_files(job, false).empty());
  job.output = "/out";
  job.rank_files = {"/kept/rank.0/stdout", "/kept/rank.1/stdout"};
  CHECK(printed_files(job, true) == std::vector<std::string>{"/out/stderr.txt"});
  job.tool = "pytorch";
  CHECK(default_file(job, true) == "stderr-0.txt");
  job.rank_files = {"/out/stdout-0.txt", "/out/stdout-1.txt"};
  CHECK(printed_files(job, false) == job.rank_files);
  CHECK(printed_files(job, true) == std::vector<std::string>{"/out/stderr-0.txt", "/out/stderr-1.txt"});
  job.tool = "tensorflow";
  CHECK(default_file(job, false) == "stdout-wk-0.txt");
  job.engine_job = "slurm:12";
  CHECK(printed_files(job, false) == std::vector<std::string>{"/out/stdout.txt"});
}

TEST_CASE("a new output directory is found where the job has its part of the path, which Slurm's has not") {
  JobRecord job;
  job.properties = R"({"outputDirectories": [{"id": "NEW", "localPathPrefix": "/out", "createNew": true},
    {"id": "OLD", "localPathPrefix": "/out", "pathSuffix": "old", "createNew": false},
    {"id": "THERE", "localPathPrefix": null, "createNew": true}]})";
  job.segment = "jobs/job/uuid";
  CHECK(output_directory(job, "NEW") == "/out/jobs/job/uuid/outputs");
  CHECK(output_directory(job, "OLD") == "/out/old");
  CHECK(!output_directory(job, "THERE"));
  job.segment.clear();
  CHECK(!output_directory(job, "NEW"));
  CHECK(output_directory(job, "OLD") == "/out/old");
}

TEST_CASE("a listing is aligned as az does it") {
  CHECK(listing({{"Name"}, {"Size", true}}, {{"stdout.txt", "2316480"}, {"a", ""}}) ==
        "Name           Size\n----------  -------\nstdout.txt  2316480\na\n");
  CHECK(listing({{"State"}, {"Idle", true}}, {{"steady", "4"}}) ==
        "State      Idle\n-------  ------\nsteady        4\n");
  CHECK(listing({{"Name"}}, {{"a\x1b[31m\nb"}}).find('\x1b') == std::string::npos);
}

}  // namespace hvd::launch::job_record_test
