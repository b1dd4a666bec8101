#include "launcher/portal/portal.h"

#include <doctest/doctest.h>

#include "launcher/page/job_page.h"
#include "launcher/portal/portal_page.h"

namespace hvd::launch::portal_test {
namespace {

JobRecord job_of(std::int64_t id, const std::string& name, ExecutionState state) {
  JobRecord job;
  job.id = id;
  job.name = name;
  job.cluster = "lab";
  job.tool = "horovod";
  job.state = state;
  job.created_ms = 1;
  return job;
}

struct Service {
  PortalView view;
  std::map<std::int64_t, JobRecord> records;
  std::map<std::int64_t, std::string> pages;
  std::map<std::int64_t, std::string> versions;

  Portal portal() {
    PortalSource source;
    source.view = [this]() -> Result<PortalView> { return view; };
    source.job = [this](std::int64_t number) -> Result<JobRecord> {
      return records.contains(number) ? Result<JobRecord>(records[number])
                                      : Error(Code::kNotFound, "there is no job <" + std::to_string(number) + ">");
    };
    source.page = [this](const JobRecord& job) -> Result<std::string> {
      return pages.contains(job.id) ? Result<std::string>(pages[job.id])
                                    : Error(Code::kNotFound, "job <" + std::to_string(job.id) + "> has no page");
    };
    source.version = [this](std::int64_t job) { return versions[job]; };
    return {source, "secret"};
  }
};

HttpAnswer get(Portal& portal, const std::string& target, const std::string& method = "GET") {
  return portal.answer(parse_http_request(method + " " + target + " HTTP/1.1\r\n").value());
}

bool has(const HttpAnswer& answer, const std::string& part) {
  return answer.body.find(part) != std::string::npos;
}

// Returns the address that the page's script asks for.
std::string stream_in(const HttpAnswer& page) {
  const std::string mark = "EventSource(\"";
  const std::size_t begin = page.body.find(mark) + mark.size();
  return page.body.substr(begin, page.body.find('"', begin) - begin);
}

}  // namespace

TEST_CASE("portal: nobody without the token learns anything") {
  Service service;
  service.view.jobs = {job_of(1, "one", ExecutionState::kRunning)};
  Portal portal = service.portal();
  for (const char* const target : {"/", "/secret", "/wrong/", "/secre/", "/secrets/", "//secret/", "/jobs/1",
                                   "/wrong/jobs/1", "/wrong/events", "*", "/secret?/"}) {
    CAPTURE(target);
    const HttpAnswer answer = get(portal, target);
    CHECK(answer.status == "404 Not Found");
    CHECK_FALSE(has(answer, "one"));
    CHECK(answer.topic.empty());
  }
  CHECK(get(portal, "/secret/", "POST").status == "405 Method Not Allowed");
}

TEST_CASE("portal: the list has jobs and clusters, and names are text") {
  Service service;
  service.view.jobs = {job_of(2, "<b>two</b>", ExecutionState::kFailed), job_of(1, "one", ExecutionState::kRunning)};
  ClusterRecord cluster;
  cluster.cluster.name = "pair";
  cluster.nodes.resize(2);
  cluster.nodes[0].state = ClusterNodeState::kRunning;
  service.view.clusters = {cluster};
  Portal portal = service.portal();
  const HttpAnswer page = get(portal, "/secret/");
  CHECK(page.status == "200 OK");
  CHECK(page.type == "text/html; charset=utf-8");
  CHECK(page.headers.find("default-src 'none'") != std::string::npos);
  CHECK(has(page, "<a href=\"jobs/2\">&lt;b&gt;two&lt;/b&gt;</a>"));
  CHECK(has(page, "class=\"failed\">failed"));
  CHECK(has(page, "class=\"running\">running"));
  CHECK(has(page, "<td>pair</td>"));
  CHECK_FALSE(has(page, "older job"));
  service.view.unlisted = 1;
  service.view.jobs[0].min_nodes = 1;
  service.view.jobs[0].max_nodes = 3;
  CHECK(has(get(portal, "/secret/"), "1 older job that has ended: hvdrun ps --all shows all."));
  CHECK(has(get(portal, "/secret/"), "<td class=\"number\">1-3</td>"));
  Service empty;
  Portal nothing = empty.portal();
  CHECK(has(get(nothing, "/secret/"), "No job has been submitted"));
  CHECK(has(get(nothing, "/secret/"), "There is no cluster"));
}

TEST_CASE("portal: a job's page leads back and follows the job; one that has none says why") {
  Service service;
  service.pages[7] = "<html><title>python</title><body><h1>seven</h1></body></html>";
  service.versions[7] = "a";
  service.records[7] = job_of(7, "<i>train</i>", ExecutionState::kRunning);
  service.records[8] = job_of(8, "next", ExecutionState::kQueued);
  Portal portal = service.portal();
  const HttpAnswer page = get(portal, "/secret/jobs/7");
  CHECK(page.status == "200 OK");
  CHECK(has(page, "<body><p><a href=\"../\">All jobs</a></p>"));
  CHECK(has(page, "<title>&lt;i&gt;train&lt;/i&gt;: running</title>"));
  CHECK(has(page, "<b>Job 7, &lt;i&gt;train&lt;/i&gt;</b>, on cluster lab, runs.<br>"));
  CHECK(stream_in(page) == "7/events?v=a");
  const HttpAnswer missing = get(portal, "/secret/jobs/8");
  CHECK(missing.status == "404 Not Found");
  CHECK(has(missing, "job &lt;8&gt; has no page"));
  CHECK(has(missing, "<b>Job 8, next</b>, on cluster lab, waits for its nodes."));
  CHECK(stream_in(missing).starts_with("8/events?v="));  // it comes when the job begins
  const HttpAnswer unknown = get(portal, "/secret/jobs/9");
  CHECK(unknown.status == "404 Not Found");
  CHECK(has(unknown, "there is no job &lt;9&gt;"));
  CHECK(stream_in(unknown).starts_with("9/events?v="));
  for (const char* const target :
       {"/secret/jobs/", "/secret/jobs/x", "/secret/jobs/-1", "/secret/jobs/0", "/secret/jobs/7/", "/secret/jobs/7/x",
        "/secret/jobs/99999999999999999999", "/secret/../x", "/secret/jobs/../jobs.db"}) {
    CAPTURE(target);
    CHECK(get(portal, target).status == "404 Not Found");
  }
}

TEST_CASE("portal: above a job's page stands what the service knows, also where its page ended as one that runs") {
  Service service;
  service.pages[7] = "<body><h1>Running</h1></body>";
  JobRecord& job = service.records[7];
  job = job_of(7, "train", ExecutionState::kFailed);
  job.phase = Phase::kStarted;
  job.error = {kLostError, "The supervisor was killed", ""};
  Portal portal = service.portal();
  CHECK(has(get(portal, "/secret/jobs/7"),
            "has failed. The supervisor was killed. What stands below was written before that.<br>"));
  job.error = {kStoppedError, "The user did it", ""};
  job.exit_code = 143;
  job.created_ms = 1'531'953'688'000;
  job.started_ms = job.created_ms + 1000;
  job.ended_ms = job.created_ms + 2000;
  CHECK(has(get(portal, "/secret/jobs/7"),
            "on cluster lab, was stopped.<br><span class=\"dim\">Submitted 2018-07-18 22:41:28 UTC, began 2018-07-18 "
            "22:41:29, ended 2018-07-18 22:41:30</span>"));
  job.error = {"JobFailed", "Job failed with non-zero exit code", ""};
  job.exit_code = 9;
  CHECK(has(get(portal, "/secret/jobs/7"), "has failed with exit code 9.<br>"));
}

TEST_CASE("portal: the page of a lost job does not say that it runs, whatever words the job itself has said") {
  JobHistory history;
  history.add(
      R"({"time":"2026-11-22T12:00:00.000Z","event":"job_started","size":1,"argv":["echo","Running: <title>Running: "],)"
      R"("nodes":[{"node":0,"host":"n1","ranks":[0]}]})");
  const std::string running = job_page(history);
  REQUIRE(running.find("<title>Running: echo Running: ") != std::string::npos);
  REQUIRE(running.find("badge running\">Running</span>") != std::string::npos);
  const std::string lost = page_of_lost(running);
  CHECK(lost.find("<title>Lost: echo Running: ") != std::string::npos);
  CHECK(lost.find("<span class=\"badge failed\">Lost while it ran</span>") != std::string::npos);
  CHECK(lost.find("badge running\">") == std::string::npos);

  Service service;
  service.pages[7] = running;
  JobRecord& job = service.records[7];
  job = job_of(7, "train", ExecutionState::kFailed);
  job.error = {kLostError, "The supervisor was killed", ""};
  Portal portal = service.portal();
  CHECK(has(get(portal, "/secret/jobs/7"), "Lost while it ran"));
  job.error = {};
  CHECK(has(get(portal, "/secret/jobs/7"), "badge running\">Running</span>"));
}

TEST_CASE("portal: a page whose stream is gone says so") {
  Service service;
  service.records[7] = job_of(7, "train", ExecutionState::kRunning);
  service.pages[7] = "<body></body>";
  Portal portal = service.portal();
  for (const char* const target : {"/secret/", "/secret/jobs/7", "/secret/jobs/8"}) {
    CAPTURE(target);
    const HttpAnswer page = get(portal, target);
    CHECK(has(page, "<p id=\"silent\" role=\"status\" hidden"));
    CHECK(has(page, "stream.onerror=function(){show(true)}"));
  }
}

TEST_CASE("portal: streams tell of changes once, also of one between the page and the stream") {
  Service service;
  service.records[7] = job_of(7, "train", ExecutionState::kRunning);
  service.pages[7] = "<body></body>";
  service.versions[7] = "a";
  Portal portal = service.portal();
  const std::string list = "/secret/" + stream_in(get(portal, "/secret/"));
  const std::string job = "/secret/jobs/" + stream_in(get(portal, "/secret/jobs/7"));
  const HttpAnswer of_list = get(portal, list);
  CHECK(of_list.topic == "list");
  CHECK(of_list.type == "text/event-stream");
  CHECK_FALSE(has(of_list, "data:"));
  CHECK_FALSE(has(get(portal, job), "data:"));
  const std::set<std::string> topics = {"list", "7"};
  CHECK(portal.news(topics).empty());
  service.versions[7] = "b";
  CHECK(portal.news(topics) == std::set<std::string>{"7"});
  CHECK(portal.news(topics).empty());
  service.view.jobs = {job_of(1, "one", ExecutionState::kQueued)};
  CHECK(portal.news(topics) == std::set<std::string>{"list"});
  CHECK(has(get(portal, list), Portal::kNews));
  CHECK(has(get(portal, job), Portal::kNews));
  // Nobody reads it for a while, and it changes meanwhile: who comes then has a new page, or is told at once.
  CHECK(portal.news({}).empty());
  service.versions[7] = "c";
  CHECK_FALSE(has(get(portal, "/secret/jobs/" + stream_in(get(portal, "/secret/jobs/7"))), "data:"));
  CHECK(portal.news({"7"}).empty());
}

}  // namespace hvd::launch::portal_test
