// launcher/report: what hvdrun says of a job, to people and to programs, word for word.
#include <signal.h>

#include <chrono>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/job/host_list.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/text_reporter.h"

using namespace hvd::launch;  // NOLINT(google-build-using-namespace)
using hvd::Code;
using hvd::Error;
using hvd::LogLevel;
using nlohmann::json;

namespace {

std::chrono::system_clock::time_point noon() {
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(1'795'348'800'007));  // 2026-11-22 12:00 UTC
}

struct Job {
  Placement placement = place(parse_host_list("a:2,b:1").value(), 3).value();
  JobSpec spec;
  JobState state{placement};
  JsonReporter events{spec, placement, noon};
  TextReporter words{placement, {}};

  void run_all() {
    state.on(NodeReady{0});
    state.on(NodeReady{1});
    for (int rank = 0; rank < 3; ++rank) {
      state.on(RankStarted{rank, 100 + rank});
    }
  }
};

// One line, as JSON; its time is checked and taken out.
json only(const Lines& lines) {
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().find('\n') == std::string::npos);
  json event = json::parse(lines.front());
  CHECK(event["time"] == "2026-11-22T12:00:00.007Z");
  event.erase("time");
  return event;
}

}  // namespace

TEST_CASE("a job's begin tells its placement") {
  Job job;
  job.spec.argv = {"python", "train.py"};
  job.spec.cwd = "/w";
  json event = only(job.events.on_begin("ab12"));
  CHECK_FALSE(event["version"].get<std::string>().empty());
  event.erase("version");
  CHECK(event == json::parse(R"({"event": "job_started", "job": "ab12", "size": 3, "argv": ["python", "train.py"],
    "cwd": "/w", "nodes": [{"node": 0, "host": "a", "transport": "ssh", "ranks": [0, 1]},
                           {"node": 1, "host": "b", "transport": "ssh", "ranks": [2]}]})"));
}

TEST_CASE("nodes and ranks have an event for each turn they take") {
  Job job;
  ReadyMessage ready;
  ready.pid = 7;
  ready.cores.resize(4);
  CHECK(only(job.events.on_node_ready(1, ready)) ==
        json::parse(R"({"event": "node_ready", "node": 1, "host": "b", "agent_pid": 7, "cores": 4, "gpus": 0})"));
  CHECK(only(job.events.on_node_away(1, Error(Code::kLostPeer, "broke"), std::chrono::seconds(60))) ==
        json::parse(R"({"event": "node_away", "node": 1, "host": "b", "message": "broke", "patience_seconds": 60.0})"));
  CHECK(only(job.events.on_node_back(1, std::chrono::milliseconds(1500))) ==
        json::parse(R"({"event": "node_back", "node": 1, "host": "b", "away_seconds": 1.5})"));
  CHECK(only(job.events.on_node_lost(0, Error(Code::kLostPeer, "gone"))) ==
        json::parse(R"({"event": "node_lost", "node": 0, "host": "a", "message": "gone", "ranks": [0, 1]})"));
  CHECK(only(job.events.on_rank_started(2, 4711)) ==
        json::parse(R"({"event": "rank_started", "rank": 2, "node": 1, "host": "b", "pid": 4711})"));
  CHECK(only(job.events.on_rank_ended(2, {ExitStatus::Kind::kExited, 3})) ==
        json::parse(R"({"event": "rank_ended", "rank": 2, "node": 1, "host": "b", "exit_code": 3, "signal": null,
                        "signal_name": null, "core_dumped": false, "out_of_memory": false})"));
  CHECK(only(job.events.on_rank_ended(0, {ExitStatus::Kind::kSignalled, SIGSEGV, true})) ==
        json::parse(R"({"event": "rank_ended", "rank": 0, "node": 0, "host": "a", "exit_code": 139, "signal": 11,
                        "signal_name": "SIGSEGV", "core_dumped": true, "out_of_memory": false})"));
  CHECK(only(job.events.on_note({LogLevel::kError, 0, "a process cannot be killed"})) ==
        json::parse(R"({"event": "note", "level": "error", "node": 0, "host": "a",
                        "message": "a process cannot be killed"})"));
}

TEST_CASE("a failure and the end are events with the job's code") {
  Job job;
  job.run_all();
  job.state.on(RankExited{1, {ExitStatus::Kind::kExited, 3}});
  job.state.on(RankExited{0, {}});
  job.state.on(NodeLost{1, Error(Code::kLostPeer, "gone")});
  CHECK(only(job.events.on_failure({*job.state.cause(), {"why", "so"}})) ==
        json::parse(R"({"event": "failure", "causes": ["rank 1 on a (pid 101) exited with code 3"], "exit_code": 3,
                        "rank": 1, "node": 0, "host": "a", "last_errors": ["why", "so"]})"));
  CHECK(only(job.events.on_end(job.state, std::chrono::milliseconds(1234))) ==
        json::parse(R"({"event": "job_ended", "exit_code": 3, "seconds": 1.234, "output_kept": true,
                        "ranks": {"succeeded": 1, "failed": 1, "lost": 1, "not_started": 0}})"));
}

TEST_CASE("whatever a rank prints, an event is one line of valid UTF-8") {
  Job job;
  const std::string garbage("\xff\xfe\x00\xc3(\xed\xa0\x80\xf4\x90\x80\x80\n\r\"\\\x1b[31m\xe2\x82", 25);
  const Lines lines = job.events.on_failure({Cause{{"what " + garbage}, 1, 0}, {garbage}});
  const json event = only(lines);
  CHECK(event["last_errors"][0].get<std::string>().find("\xef\xbf\xbd") == 0);
  CHECK(json::parse(event.dump()) == event);  // dump() throws for what is not UTF-8
}

TEST_CASE("a job that is refused has a failure and an end, too") {
  Job job;
  const Lines lines = job.events.on_refused(Error(Code::kInvalid, "no such flag"), 240);
  REQUIRE(lines.size() == 2);
  CHECK(json::parse(lines[0])["causes"][0] == "no such flag");
  CHECK(json::parse(lines[1])["event"] == "job_ended");
  CHECK(json::parse(lines[1])["exit_code"] == 240);
}

TEST_CASE("words are silenced by --quiet, errors are not") {
  Job job;
  TextReporter quiet(job.placement, {true});
  CHECK(job.words.on_note({LogLevel::kWarning, 1, "shared GPUs"}) == Lines{"hvdrun: b: shared GPUs"});
  CHECK(quiet.on_note({LogLevel::kWarning, 1, "shared GPUs"}).empty());
  CHECK(quiet.on_note({LogLevel::kError, -1, "disk full"}) == Lines{"hvdrun: disk full"});
  CHECK(quiet.on_end(job.state, {}).empty());
  CHECK(job.words.on_end(job.state, std::chrono::seconds(1)) == Lines{"hvdrun: 3 ranks on 2 nodes succeeded in 1.0 s"});
}

TEST_CASE("a node that is away and back is told with its times") {
  Job job;
  CHECK(job.words.on_node_away(1, Error(Code::kLostPeer, "broke"), std::chrono::seconds(60)) ==
        Lines{"hvdrun: b: broke; trying to reach it again for 60 s (--reconnect-timeout)"});
  CHECK(job.words.on_node_back(1, std::chrono::seconds(5)) ==
        Lines{"hvdrun: b: reached again after 5 s; no output was lost"});
}
