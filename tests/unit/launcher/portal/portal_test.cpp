#include "launcher/portal/portal.h"

#include <doctest/doctest.h>

namespace hvd::launch {
namespace {

JobRecord job_of(std::int64_t id, const std::string& name, ExecutionState state) {
  JobRecord job;
  job.id = id;
  job.name = name;
  job.tool = "horovod";
  job.state = state;
  job.created_ms = 1;
  return job;
}

struct Service {
  PortalView view;
  std::map<std::int64_t, std::string> pages;
  std::map<std::int64_t, std::string> versions;

  Portal portal() {
    PortalSource source;
    source.view = [this]() -> Result<PortalView> { return view; };
    source.page = [this](std::int64_t job) -> Result<std::string> {
      return pages.contains(job) ? Result<std::string>(pages[job])
                                 : Error(Code::kNotFound, "job <" + std::to_string(job) + "> has no page");
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
  Service empty;
  Portal nothing = empty.portal();
  CHECK(has(get(nothing, "/secret/"), "No job has been submitted"));
  CHECK(has(get(nothing, "/secret/"), "There is no cluster"));
}

TEST_CASE("portal: a job's page leads back and follows the job; one that has none says why") {
  Service service;
  service.pages[7] = "<html><body><h1>seven</h1></body></html>";
  service.versions[7] = "a";
  Portal portal = service.portal();
  const HttpAnswer page = get(portal, "/secret/jobs/7");
  CHECK(page.status == "200 OK");
  CHECK(has(page, "<body><p><a href=\"../\">All jobs</a></p>"));
  CHECK(stream_in(page) == "7/events?v=a");
  const HttpAnswer missing = get(portal, "/secret/jobs/8");
  CHECK(missing.status == "404 Not Found");
  CHECK(has(missing, "job &lt;8&gt; has no page"));
  CHECK(stream_in(missing).starts_with("8/events?v="));  // it comes when the job begins
  for (const char* const target :
       {"/secret/jobs/", "/secret/jobs/x", "/secret/jobs/-1", "/secret/jobs/0", "/secret/jobs/7/", "/secret/jobs/7/x",
        "/secret/jobs/99999999999999999999", "/secret/../x", "/secret/jobs/../jobs.db"}) {
    CAPTURE(target);
    CHECK(get(portal, target).status == "404 Not Found");
  }
}

TEST_CASE("portal: streams tell of changes once, also of one between the page and the stream") {
  Service service;
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

}  // namespace hvd::launch
