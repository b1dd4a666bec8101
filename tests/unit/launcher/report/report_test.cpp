// launcher/report: what hvdrun says of a job, to people and to programs, word for word.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/job/host_list.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/step_reporter.h"
#include "launcher/report/text_reporter.h"
#include "launcher/report/traceback.h"
#include "tests/multi/thread_job.h"

namespace hvd::launch::report_test {

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
  json event = only(job.events.on(news::Begun{"ab12"}));
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
  CHECK(only(job.events.on(news::NodeReady{1, ready})) ==
        json::parse(R"({"event": "node_ready", "node": 1, "host": "b", "agent_pid": 7, "cores": 4, "gpus": 0})"));
  CHECK(only(job.events.on(news::NodeAway{1, Error(Code::kLostPeer, "broke"), std::chrono::seconds(60)})) ==
        json::parse(R"({"event": "node_away", "node": 1, "host": "b", "message": "broke", "patience_seconds": 60.0})"));
  CHECK(only(job.events.on(news::NodeBack{1, std::chrono::milliseconds(1500)})) ==
        json::parse(R"({"event": "node_back", "node": 1, "host": "b", "away_seconds": 1.5})"));
  CHECK(only(job.events.on(news::NodeLost{0, Error(Code::kLostPeer, "gone")})) ==
        json::parse(R"({"event": "node_lost", "node": 0, "host": "a", "message": "gone", "ranks": [0, 1]})"));
  CHECK(only(job.events.on(news::RankStarted{2, 4711})) ==
        json::parse(R"({"event": "rank_started", "rank": 2, "node": 1, "host": "b", "pid": 4711})"));
  CHECK(only(job.events.on(news::RankEnded{2, {ExitStatus::Kind::kExited, 3}, {}})) ==
        json::parse(R"({"event": "rank_ended", "rank": 2, "node": 1, "host": "b", "exit_code": 3, "signal": null,
                        "signal_name": null, "core_dumped": false, "core_place": "", "out_of_memory": false,
                        "memory_evidence": ""})"));
  CHECK(only(job.events.on(news::RankEnded{0, {ExitStatus::Kind::kSignalled, SIGSEGV, true}, {"", "in /core"}})) ==
        json::parse(R"({"event": "rank_ended", "rank": 0, "node": 0, "host": "a", "exit_code": 139, "signal": 11,
                        "signal_name": "SIGSEGV", "core_dumped": true, "core_place": "in /core", "out_of_memory": false,
                        "memory_evidence": ""})"));
  CHECK(only(job.events.on(Note{LogLevel::kError, 0, "a process cannot be killed"})) ==
        json::parse(R"({"event": "note", "level": "error", "node": 0, "host": "a",
                        "message": "a process cannot be killed"})"));
}

TEST_CASE(
    "a hidden text is masked in the values of an event, whatever JSON makes of it, and not in hvdrun's own words") {
  Job job;
  job.spec.hidden = {"to\"ken\\", "note", "2026"};
  CHECK(only(job.events.on(Note{LogLevel::kError, 0, "401 for to\"ken\\, which is noted"})) ==
        json::parse(
            R"({"event": "note", "level": "error", "node": 0, "host": "a", "message": "401 for ***, which is ***d"})"));
  CHECK(only({json_log_line(LogLevel::kDebug, "a to\"ken\\", noon, job.spec.hidden)})["message"] == "a ***");
  CHECK(only({json_refusal(Error(Code::kInvalid, "to\"ken\\"), 240, noon, job.spec.hidden).front()})["causes"][0] ==
        "***");
  CHECK(only({json_refusal(Error(Code::kInvalid, "no"), 240, noon, {}).front()})["before_ranks"] == false);
}

TEST_CASE("what hvdrun says of nodes and ranks is no command to the terminal") {
  Job job;
  const Error why(Code::kLostPeer,
                  "gone \x1b]52;c;aGk=\x07\xc2\x9b"
                  "31m\nand\tso on");
  CHECK(job.words.on(news::Refused{why}) == Lines{"hvdrun: gone ?]52;c;aGk=??31m\nand\tso on"});
  CHECK(job.words.on(Note{LogLevel::kError, 1, "\x1b[31mred"}) == Lines{"hvdrun: b: ?[31mred"});
  job.run_all();
  job.state.on(RankExited{1, {ExitStatus::Kind::kExited, 3}});
  const Lines said = job.words.on(Failure{*job.state.cause(), {"\x1b[31mbad\x1b[0m"}, {}, {}, ""});
  CHECK(std::find(said.begin(), said.end(), "hvdrun:   ?[31mbad?[0m") != said.end());
}

TEST_CASE("a failure and the end are events with the job's code") {
  Job job;
  job.run_all();
  job.state.on(RankExited{1, {ExitStatus::Kind::kExited, 3}});
  job.state.on(RankExited{0, {}});
  job.state.on(NodeLost{1, Error(Code::kLostPeer, "gone")});
  const Lines last = {"  File \"t.py\", line 3, in <module>", "ValueError: bad"};
  CHECK(
      only(job.events.on(Failure{*job.state.cause(), last, {}, {}, "/d/rank.1"})) ==
      json::parse(
          R"({"event": "failure", "before_ranks": false, "causes": ["rank 1 on a (pid 101) exited with code 3"], "exit_code": 3,
                        "rank": 1, "node": 0, "host": "a", "last_errors": ["  File \"t.py\", line 3, in <module>", "ValueError: bad"],
                        "exception": "ValueError: bad", "frame": "t.py:3 in <module>", "kept_in": "/d/rank.1"})"));
  CHECK(only(job.events.on(news::Ended{job.state, std::chrono::milliseconds(1234)})) ==
        json::parse(R"({"event": "job_ended", "exit_code": 3, "seconds": 1.234, "output_kept": true,
                        "ranks": {"succeeded": 1, "failed": 1, "lost": 1, "not_started": 0, "released": 0}})"));
}

TEST_CASE("whatever a rank prints, an event is one line of valid UTF-8") {
  Job job;
  static constexpr char kGarbage[] = "\xff\xfe\x00\xc3(\xed\xa0\x80\xf4\x90\x80\x80\n\r\"\\\x1b[31m\xe2\x82";
  const std::string garbage(kGarbage, sizeof kGarbage - 1);
  const Lines lines = job.events.on(Failure{Cause{{"what " + garbage}, 1, 0}, {garbage}, {}, {}, ""});
  const json event = only(lines);
  CHECK(event["last_errors"][0].get<std::string>().find("\xef\xbf\xbd") == 0);
  CHECK(json::parse(event.dump()) == event);  // dump() throws for what is not UTF-8
}

TEST_CASE("a job that is refused has a failure and an end, too") {
  Job job;
  const Lines lines = job.events.on(news::Refused{Error(Code::kInvalid, "no such flag"), 240});
  REQUIRE(lines.size() == 2);
  CHECK(json::parse(lines[0])["causes"][0] == "no such flag");
  CHECK(json::parse(lines[1])["event"] == "job_ended");
  CHECK(json::parse(lines[1])["exit_code"] == 240);
}

TEST_CASE("words are silenced by --quiet, errors are not") {
  Job job;
  TextReporter quiet(job.placement, {true});
  CHECK(job.words.on(Note{LogLevel::kWarning, 1, "shared GPUs"}) == Lines{"hvdrun: b: shared GPUs"});
  CHECK(quiet.on(Note{LogLevel::kWarning, 1, "shared GPUs"}).empty());
  CHECK(quiet.on(Note{LogLevel::kError, -1, "disk full"}) == Lines{"hvdrun: disk full"});
  job.run_all();
  for (int rank = 0; rank < 3; ++rank) {
    job.state.on(RankExited{rank, {}});
  }
  CHECK(quiet.on(news::Ended{job.state, {}}).empty());
  CHECK(job.words.on(news::Ended{job.state, std::chrono::seconds(1)}) ==
        Lines{"hvdrun: 3 ranks on 2 nodes succeeded in 1.0 s"});
}

TEST_CASE("a node that is away and back is told with its times") {
  Job job;
  CHECK(job.words.on(news::NodeAway{1, Error(Code::kLostPeer, "broke"), std::chrono::seconds(60)}) ==
        Lines{"hvdrun: b: broke; trying to reach it again for 60 s (--reconnect-timeout)"});
  CHECK(job.words.on(news::NodeBack{1, std::chrono::seconds(5)}) ==
        Lines{"hvdrun: b: reached again after 5 s; no output was lost"});
}

namespace {

constexpr ExitStatus kOne{ExitStatus::Kind::kExited, 1};
constexpr ExitStatus kKilled{ExitStatus::Kind::kSignalled, SIGKILL};

// The block that is said when rank 1 ends so, as one text.
std::string failure_text(const ExitStatus& status, const ExitDetail& detail, const Lines& last_errors,
                         const std::string& kept_in = "") {
  Job job;
  job.run_all();
  job.state.on(RankExited{1, status, detail});
  std::string text;
  Failure failure{*job.state.cause(), last_errors, status, detail, kept_in};
  failure.still_running = job.state.running_besides(1);
  for (const std::string& line : job.words.on(failure)) {
    text += line + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("golden: a rank that ends by an exception") {
  CHECK(failure_text(kOne, {},
                     {"starting", "Traceback (most recent call last):", "  File \"train.py\", line 40, in <module>",
                      "    main()", "  File \"train.py\", line 12, in step", "    x = 1 / 0", "        ~~^~~",
                      "ZeroDivisionError: division by zero"},
                     "/kept/rank.1") ==
        R"(hvdrun: rank 1 on a (pid 101) exited with code 1
hvdrun: ZeroDivisionError: division by zero, train.py:12 in step
hvdrun: the last lines of its standard error:
hvdrun:   Traceback (most recent call last):
hvdrun:     File "train.py", line 40, in <module>
hvdrun:       main()
hvdrun:     File "train.py", line 12, in step
hvdrun:       x = 1 / 0
hvdrun:           ~~^~~
hvdrun:   ZeroDivisionError: division by zero
hvdrun: all that it printed is in /kept/rank.1
hvdrun: stopping the other 2 ranks
)");
}

TEST_CASE("what the user has just seen is not quoted, and an exception that was told is not told again") {
  Job job;
  job.run_all();
  job.state.on(RankExited{1, kOne, {}});
  const Lines errors = {"starting", "Traceback (most recent call last):", "  File \"train.py\", line 12, in step",
                        "ZeroDivisionError: division by zero"};
  Failure failure{*job.state.cause(), errors, kOne, {}, ""};
  failure.still_running = 2;
  const auto text = [&] {
    std::string all;
    for (const std::string& line : job.words.on(failure)) {
      all += line + "\n";
    }
    return all;
  };
  failure.just_shown = 2;  // not its beginning
  CHECK(text().find("hvdrun: the last lines of its standard error:\nhvdrun:   Traceback") != std::string::npos);
  failure.just_shown = 3;
  CHECK(text() == R"(hvdrun: rank 1 on a (pid 101) exited with code 1
hvdrun: ZeroDivisionError: division by zero, train.py:12 in step
hvdrun: stopping the other 2 ranks
)");
  failure.cause.lines = {"rank 1 on a (pid 101) failed: ZeroDivisionError: division by zero"};
  CHECK(text() == R"(hvdrun: rank 1 on a (pid 101) failed: ZeroDivisionError: division by zero
hvdrun: stopping the other 2 ranks
)");
}

TEST_CASE("the last line names the exception too, unless the cause does") {
  for (const bool is_in_cause : {false, true}) {
    Job job;
    job.run_all();
    job.state.on(RankExited{1, kOne, {}});
    Failure failure{*job.state.cause(), {"  File \"train.py\", line 3, in main", "ValueError: boom"}, kOne, {}, ""};
    failure.cause.lines.front() += is_in_cause ? ": ValueError: boom" : "";
    job.words.on(failure);
    CHECK(job.words.on(news::Ended{job.state, std::chrono::seconds(1)}) ==
          Lines{"hvdrun: job failed after 1.0 s: rank 1 on a (pid 101) exited with code 1" +
                std::string(is_in_cause ? "" : " (ValueError: boom, train.py:3 in main)") + "; exit code 1"});
  }
}

TEST_CASE("a job that succeeded without some of its ranks says so, in words and in JSON") {
  const Placement placement = place(parse_host_list("a:2,b:1").value(), 3).value();
  JobState state(placement, {}, 1, std::chrono::seconds(10), 1);
  const JobSpec spec;
  JsonReporter events(spec, placement, noon);
  TextReporter words(placement, {});
  state.on(NodeReady{0});
  state.on(NodeReady{1});
  for (int rank = 0; rank < 3; ++rank) {
    state.on(RankStarted{rank, 100 + rank});
    state.on(RankJoined{rank});
  }
  state.on(NodeLost{1, Error(Code::kLostPeer, "gone")});
  state.on(RankExited{1, kOne});
  state.on(RankStarted{1, 201});  // and before it joins again
  state.on(RankExited{0, {}});
  state.on(RankExited{1, {ExitStatus::Kind::kSignalled, SIGTERM}});
  REQUIRE(state.exit_code() == 0);
  CHECK(words.on(news::Ended{state, std::chrono::seconds(1)}) ==
        Lines{"hvdrun: 1 of 3 ranks on 2 nodes succeeded in 1.0 s; 1 was lost, 1 was released"});
  CHECK(only(events.on(news::Ended{state, {}}))["ranks"] ==
        json::parse(R"({"succeeded": 1, "failed": 0, "lost": 1, "not_started": 0, "released": 1})"));
}

TEST_CASE("only ranks that still run are said to be stopped") {
  Job job;
  job.run_all();
  job.state.on(RankExited{0, {ExitStatus::Kind::kExited, 0}, {}});
  job.state.on(RankExited{1, kOne, {}});
  Failure failure{*job.state.cause(), {}, kOne, {}, ""};
  failure.still_running = job.state.running_besides(1);
  CHECK(job.words.on(failure) ==
        Lines{"hvdrun: rank 1 on a (pid 101) exited with code 1", "hvdrun: stopping the rank that still runs"});
  job.state.on(RankExited{2, {ExitStatus::Kind::kExited, 0}, {}});
  failure.still_running = job.state.running_besides(1);
  CHECK(job.words.on(failure) == Lines{"hvdrun: rank 1 on a (pid 101) exited with code 1"});
}

TEST_CASE("golden: a rank that the kernel killed, may have killed, and that somebody killed") {
  ExitStatus by_kernel = kKilled;
  by_kernel.out_of_memory = true;
  CHECK(failure_text(by_kernel, {"the kernel's log says: Out of memory: Killed process 101 (python)", ""}, {}) ==
        R"(hvdrun: rank 1 on a (pid 101) was killed by signal 9 (SIGKILL) by the kernel: out of memory
hvdrun: out of memory: the kernel's log says: Out of memory: Killed process 101 (python)
hvdrun: stopping the other 2 ranks
)");
  CHECK(failure_text(kKilled, {"its memory cgroup has hit its limit (/c/memory.failcnt)", ""}, {}) ==
        R"(hvdrun: rank 1 on a (pid 101) was killed by signal 9 (SIGKILL)
hvdrun: it may have been out of memory: its memory cgroup has hit its limit (/c/memory.failcnt); on a try: dmesg | grep -i 'killed process'
hvdrun: stopping the other 2 ranks
)");
  CHECK(failure_text(kKilled, {}, {"last words"}) ==
        R"(hvdrun: rank 1 on a (pid 101) was killed by signal 9 (SIGKILL)
hvdrun: what sent the signal is not known; if it was the kernel, for lack of memory, on a try: dmesg | grep -i 'killed process'
hvdrun: the last lines of its standard error:
hvdrun:   last words
hvdrun: stopping the other 2 ranks
)");
}

TEST_CASE("golden: a rank that dumped its core") {
  CHECK(failure_text({ExitStatus::Kind::kSignalled, SIGSEGV, true}, {"", "in /w/core.101"}, {}) ==
        R"(hvdrun: rank 1 on a (pid 101) was killed by signal 11 (SIGSEGV); core dumped
hvdrun: its core dump was written on a: in /w/core.101
hvdrun: stopping the other 2 ranks
)");
}

TEST_CASE("a Python traceback is quoted from its beginning, other errors by their last lines, few of them") {
  Lines lines(30, "noise");
  const auto count = [&lines] {
    const std::string text = failure_text(kOne, {}, lines);
    return std::count(text.begin(), text.end(), '\n') - 3;
  };
  CHECK(count() == 14);
  lines[5] = "Traceback (most recent call last):";
  lines[25] = "Traceback (most recent call last):";
  CHECK(count() == 14);
  CHECK(failure_text(kOne, {}, lines).find("hvdrun:   Traceback (most recent call last):\n") != std::string::npos);
}

TEST_CASE("the start is told as a row: how many hosts, which is slowest, and what is done about it") {
  Job job;
  TextReporter words(job.placement, {false, true});
  CHECK(words.status() == "hvdrun: 0/2 hosts connected; slowest: a");
  CHECK(words.on(news::NodeProgress{0, "pushing the agent"}).empty());
  CHECK(words.status() == "hvdrun: 0/2 hosts connected; slowest: b");
  words.on(news::NodeProgress{1, "waiting for a free handshake"});
  CHECK(words.status() == "hvdrun: 0/2 hosts connected; slowest: a (pushing the agent)");
  words.on(news::NodeReady{0, {}});
  CHECK(words.status() == "hvdrun: 1/2 hosts connected; slowest: b (waiting for a free handshake)");
  words.on(news::NodeLost{1, Error(Code::kUnreachable, "b: refused")});
  CHECK(words.status().empty());
  CHECK(words.on(news::AllReady{std::chrono::milliseconds(300)}).empty());
  CHECK(words.on(news::AllReady{std::chrono::milliseconds(4100)}) == Lines{"hvdrun: 2 hosts connected in 4.1 s"});
}

TEST_CASE("hosts that failed are counted beside those that are waited for") {
  Job job;
  TextReporter words(job.placement, {false, true});
  words.on(news::NodeLost{0, Error(Code::kUnreachable, "a: refused")});
  CHECK(words.status() == "hvdrun: 0/2 hosts connected, 1 failed; slowest: b");
}

TEST_CASE("no row where nobody looks") {
  Job job;
  CHECK(TextReporter(job.placement, {true, true}).status().empty());
  CHECK(TextReporter(job.placement, {false, false}).status().empty());
  CHECK(TextReporter(job.placement, {false, false}).on(news::AllReady{std::chrono::hours(1)}).empty());
  CHECK(TextReporter(job.placement, {false, true}).on(news::SlowStart{}).empty());
  CHECK(job.events.on(news::SlowStart{}).empty());
  CHECK(job.events.status().empty());
}

TEST_CASE("where no terminal is, a slow start is told a line for each change, and its end") {
  const Job job;
  TextReporter words(job.placement, {false, false});
  CHECK(words.on(news::SlowStart{}) == Lines{"hvdrun: 0/2 hosts connected; slowest: a"});
  CHECK(words.on(news::SlowStart{}).empty());
  words.on(news::NodeReady{0, {}});
  CHECK(words.on(news::SlowStart{}) == Lines{"hvdrun: 1/2 hosts connected; slowest: b"});
  words.on(news::NodeReady{1, {}});
  CHECK(words.on(news::SlowStart{}).empty());
  CHECK(words.on(news::AllReady{std::chrono::seconds(12)}) == Lines{"hvdrun: 2 hosts connected in 12.0 s"});
  TextReporter quiet(job.placement, {true, false});
  CHECK(quiet.on(news::SlowStart{}).empty());
  CHECK(quiet.on(news::AllReady{std::chrono::seconds(12)}).empty());
}

TEST_CASE("the end of a traceback is found, also when its beginning is cut off or another one led to it") {
  const auto end_of = [](const Lines& lines) {
    const auto found = find_traceback(lines);
    return found ? found->exception + " @ " + found->frame : "none";
  };
  CHECK(end_of({"  File \"a.py\", line 1, in f", "    raise", "pkg.err.Odd: what", "more of it"}) ==
        "pkg.err.Odd: what @ a.py:1 in f");
  CHECK(end_of({"  File \"a.py\", line 1, in f", "KeyError: 'x'", "",
                "During handling of the above exception, another "
                "exception occurred:",
                "", "Traceback (most recent call last):", "  File \"b.py\", line 2, in g",
                "  [Previous line repeated 3 more times]", "RuntimeError"}) == "RuntimeError @ b.py:2 in g");
  CHECK(end_of({"[rank1]:   File \"a.py\", line 1, in f", "[rank1]:     g()", "[rank1]: ValueError: no"}) ==
        "ValueError: no @ a.py:1 in f");
  // An error of the package names the program's line, where that is there.
  CHECK(end_of({"  File \"a.py\", line 1, in f", "    hvd.allreduce(x)",
                "  File \"/v/site-packages/horovod/torch/_handles.py\", line 9, in g", "    raise error",
                "horovod.common.exceptions.HorovodInternalError: no"}) ==
        "horovod.common.exceptions.HorovodInternalError: no @ a.py:1 in f");
  CHECK(end_of({"    hvd.allreduce(x)", "  File \"/v/horovod/torch/_handles.py\", line 9, in g",
                "horovod.common.exceptions.HorovodInternalError: no"}) ==
        "horovod.common.exceptions.HorovodInternalError: no @ /v/horovod/torch/_handles.py:9 in g");
  CHECK(end_of({"  File \"s.py\", line 9", "    x = = 1", "        ^", "SyntaxError: invalid syntax"}) ==
        "SyntaxError: invalid syntax @ s.py:9");
  CHECK(end_of({"  File \"a.py\", line 1, in f", "    raise"}) == "none");
  CHECK(end_of({"  File \"a.py\", line 1, in f", "12 apples: none"}) == "none");
  CHECK(end_of({"Error: plain"}) == "none");
  CHECK(end_of({}) == "none");
}

namespace {

// The preparation of a job file's nodes, whose "ranks" are the nodes; 77 means that the job's folder could not be made.
struct Preparation {
  Job job;
  StepMemory memory{{}, [] { return std::int64_t{0}; }};
  StepReporter words{
      std::make_unique<TextReporter>(job.placement, TextOptions{}), job.placement, memory,
      StepWords{"job preparation", "JobPreparationFailed", "making the folder", "FolderFailed", 77, true, true}};

  Lines fail(int exit_code) {
    job.run_all();
    const ExitStatus status{ExitStatus::Kind::kExited, exit_code};
    job.state.on(RankExited{2, status});
    words.on(news::RankEnded{2, status, {}});
    return words.on(Failure{*job.state.cause(), {"no such mount"}, status, {}, ""});
  }
};

}  // namespace

TEST_CASE("a failed preparation names its node, and no ranks that would have to be stopped") {
  Preparation step;
  const Lines said = step.fail(3);
  CHECK(said.front().find("hvdrun: JobPreparationFailed: job preparation on b") == 0);
  for (const std::string& line : said) {
    CHECK(line.find("stopping the other") == std::string::npos);
  }
  CHECK(step.words.on(news::Ended{step.job.state, std::chrono::seconds(1)}) ==
        Lines{"hvdrun: job failed before its processes were started; exit code 3"});
}

TEST_CASE("a step that failed before its own command began has another name and code") {
  Preparation step;
  CHECK(step.fail(77).front().find("hvdrun: FolderFailed: making the folder on b") == 0);
}

TEST_CASE("a preparation's failure is told to programs as one before the ranks") {
  Job job;
  StepMemory memory{{}, [] { return std::int64_t{0}; }};
  StepReporter events(std::make_unique<JsonReporter>(job.spec, job.placement, noon), job.placement, memory,
                      StepWords{"job preparation", "JobPreparationFailed", "", "", 0, true, true});
  job.run_all();
  const ExitStatus status{ExitStatus::Kind::kExited, 3};
  job.state.on(RankExited{0, status});
  const Lines lines = events.on(Failure{*job.state.cause(), {}, status, {}, ""});
  REQUIRE(lines.size() == 1);
  CHECK(json::parse(lines.front())["before_ranks"] == true);
}

TEST_CASE("the same note from two steps is told once, and a lost node is known to the next step") {
  Job job;
  StepMemory memory{{}, [] { return std::int64_t{0}; }};
  const auto step = [&] {
    return StepReporter(std::make_unique<TextReporter>(job.placement, TextOptions{}), job.placement, memory,
                        StepWords{"a step", "", "", "", 0, false, true});
  };
  CHECK(step().on(Note{LogLevel::kWarning, 1, "slow disk"}).size() == 1);
  CHECK(step().on(Note{LogLevel::kWarning, 1, "slow disk"}).empty());
  step().on(news::NodeLost{1, Error(Code::kLostPeer, "gone")});
  CHECK(memory.is_lost(1));
  CHECK_FALSE(memory.is_lost(0));
}

TEST_CASE("what one step says twice is told twice") {
  Job job;
  StepMemory memory{{}, [] { return std::int64_t{0}; }};
  StepReporter step(std::make_unique<TextReporter>(job.placement, TextOptions{}), job.placement, memory,
                    StepWords{"a step", "", "", "", 0, false, true});
  CHECK(step.on(Note{LogLevel::kInfo, -1, "[0-1] waits in f"}).size() == 1);
  CHECK(step.on(Note{LogLevel::kInfo, -1, "[0-1] waits in f"}).size() == 1);
}

TEST_CASE("where each rank has an agent, what is noted of agents is noted of their nodes") {
  const Placement nodes = place(parse_host_list("a:2,b:2").value(), 4).value();
  const Placement agents = one_node_per_rank(nodes);
  const test::ScratchDir folder;
  const std::string logs[] = {folder.path() + "/a", folder.path() + "/b"};
  StepMemory memory({logs[0], logs[1]}, [] { return std::int64_t{0}; });
  StepWords words;
  words.name = "job";
  words.node_of_agent = {0, 0, 1, 1};
  StepReporter step(std::make_unique<TextReporter>(agents, TextOptions{}), agents, memory, words);
  step.on(news::AllReady{});
  step.on(news::RankStarted{1, 77});
  step.on(news::NodeLost{1, Error(Code::kLostPeer, "gone")});
  CHECK(memory.is_lost(0));
  CHECK_FALSE(memory.is_lost(1));
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string begin = "1970/01/01 00:00:00 ";
  CHECK(text_of(logs[0]) ==
        begin + "Executing 'job' on a\n" + begin + "Rank 1 is process 77\n" + begin + "a was lost: gone\n");
  CHECK(text_of(logs[1]) == begin + "Executing 'job' on b\n");
}

TEST_CASE("hidden texts are masked in a node's log") {
  const test::ScratchDir folder;
  StepMemory memory({folder.path() + "/log"}, [] { return std::int64_t{0}; }, {"s3cr3t"});
  memory.say(0, "it said: bad s3cr3t");
  std::ifstream file(folder.path() + "/log");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "1970/01/01 00:00:00 it said: bad ***\n");
}

TEST_CASE("a node that was there and has not ended in time counts as lost for the next step") {
  Job job;
  StepMemory memory{{}, [] { return std::int64_t{0}; }};
  StepReporter step(std::make_unique<TextReporter>(job.placement, TextOptions{}), job.placement, memory,
                    StepWords{"job", "", "", "", 0, false, false});
  job.run_all();
  const ReadyMessage ready;
  for (const NodePlan& node : job.placement.nodes) {
    step.on(news::NodeReady{node.index, ready});
  }
  job.state.on(Interrupted{SIGTERM});
  job.state.on(NodeDone{0});
  job.state.on(StopTimedOut{});
  step.on(news::Ended{job.state, std::chrono::seconds(1)});
  CHECK_FALSE(memory.is_lost(0));
  CHECK(memory.is_lost(1));
}

}  // namespace hvd::launch::report_test
