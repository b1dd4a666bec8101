#include "launcher/page/job_spans.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/page/span_file.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::job_spans_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kParent = "00f067aa0ba902b7";

std::vector<std::string> failed_job(const std::string& minute = "02") {
  const std::string at = R"(,"time":"2026-11-22T01:)" + minute + ":";
  return {
      R"({"event":"job_started","version":"0.1.0","job":"x","size":2,"argv":["python","t.py"],"cwd":"/w",)"
      R"("nodes":[{"node":0,"host":"a","transport":"ssh","ranks":[0,1]}])" +
          at + "00.000Z\"}",
      R"({"event":"node_ready","node":0,"host":"a","agent_pid":1,"cores":4,"gpus":0)" + at + "00.500Z\"}",
      R"({"event":"rank_started","rank":0,"node":0,"host":"a","pid":11)" + at + "01.000Z\"}",
      R"({"event":"rank_started","rank":1,"node":0,"host":"a","pid":12)" + at + "01.000Z\"}",
      R"({"event":"rank_ended","rank":1,"node":0,"host":"a","exit_code":3,"signal":null)" + at + "04.250Z\"}",
      R"({"event":"failure","causes":["rank 1 exited with code 3"],"exit_code":3,"rank":1,"node":0,"host":"a")" + at +
          "04.250Z\"}",
      R"({"event":"rank_ended","rank":0,"node":0,"host":"a","exit_code":0,"signal":null)" + at + "04.500Z\"}",
      R"({"event":"job_ended","exit_code":3,"seconds":5)" + at + "05.000Z\"}",
  };
}

JobHistory history_of(const std::vector<std::string>& events) {
  JobHistory history;
  for (const std::string& event : events) {
    history.add(event);
  }
  return history;
}

Json spans_in(const std::string& text) {
  const Json document = Json::parse(text);
  return document.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans");
}

std::string value_of(const Json& span, const std::string& key) {
  for (const Json& attribute : span.at("attributes")) {
    if (attribute.at("key") == key) {
      return attribute.at("value").begin()->get<std::string>();
    }
  }
  return "none";
}

}  // namespace

TEST_CASE("spans: a job has one, and each node's start and each rank's process one below it") {
  const Json spans = spans_in(job_spans({{"job", history_of(failed_job())}}, {kTrace, kParent}));
  REQUIRE(spans.size() == 4);
  const Json& job = spans[0];
  CHECK((job["name"] == "job" && job["traceId"] == kTrace && job["parentSpanId"] == kParent));
  CHECK(job["startTimeUnixNano"] == "1795309320000000000");
  CHECK(job["endTimeUnixNano"] == "1795309325000000000");
  CHECK((job["status"]["code"] == 2 && job["status"]["message"] == "rank 1 exited with code 3"));
  CHECK((value_of(job, "process.command_line") == "python t.py" && value_of(job, "hvdrun.exit_code") == "3"));
  CHECK((spans[1]["name"] == "start of a" && spans[1]["endTimeUnixNano"] == "1795309320500000000"));
  for (std::size_t i = 1; i < spans.size(); ++i) {
    CHECK(spans[i]["parentSpanId"] == job["spanId"]);
    CHECK(spans[i]["spanId"].get<std::string>().size() == 16);
  }
  CHECK((spans[2]["name"] == "rank 0" && !spans[2].contains("status") && value_of(spans[2], "process.pid") == "11"));
  CHECK((spans[3]["name"] == "rank 1" && spans[3]["status"]["code"] == 2));
}

TEST_CASE("spans: the steps of a job are below one span that lasts as long as all of them") {
  const Json spans = spans_in(
      job_spans({{"preparation", history_of(failed_job("02"))}, {"job", history_of(failed_job("03"))}}, {kTrace, ""}));
  REQUIRE(spans.size() == 9);
  CHECK((spans[0]["name"] == "hvdrun" && !spans[0].contains("parentSpanId")));
  CHECK(spans[0]["endTimeUnixNano"] == "1795309385000000000");
  CHECK((spans[1]["name"] == "preparation" && spans[1]["parentSpanId"] == spans[0]["spanId"]));
  CHECK((spans[5]["name"] == "job" && spans[5]["parentSpanId"] == spans[0]["spanId"]));
}

TEST_CASE("spans: a TRACEPARENT that is none counts as none") {
  const std::string good = std::string("00-") + kTrace + "-" + kParent + "-01";
  CHECK((span_place_of(good).trace == kTrace && span_place_of(good).parent == kParent));
  for (const std::string& bad :
       {std::string(), std::string("x"), good.substr(0, 54), std::string(55, '-'),
        "00-" + std::string(32, '0') + "-" + kParent + "-01", "00-" + std::string(32, 'G') + "-" + kParent + "-01"}) {
    CHECK(span_place_of(bad).trace.empty());
  }
}

TEST_CASE("spans: the file is written when a step ends, and one that cannot be is told once") {
  const test::Folder folder;
  const std::string path = folder.path + "/spans.json";
  SpanFile file(path, {});
  file.begin("job");
  for (const std::string& event : failed_job()) {
    file.add(event);
  }
  CHECK(file.failure().empty());
  const Json spans = spans_in(test::read_file(path));
  CHECK(spans[0]["traceId"].get<std::string>().size() == 32);
  SpanFile nowhere("/nowhere/spans.json", {});
  nowhere.begin("job");
  for (const std::string& event : failed_job()) {
    nowhere.add(event);
  }
  CHECK(nowhere.failure().find("--spans: ") == 0);
  CHECK(nowhere.failure().empty());
}

}  // namespace hvd::launch::job_spans_test
