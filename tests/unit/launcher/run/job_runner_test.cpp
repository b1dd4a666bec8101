// launcher/run/job_runner: whole jobs on nodes that are not there, in a time that goes by itself. Here the ranks end,
// fail, are stopped and started again; lost nodes and strange agents are in job_runner_nodes_test.cpp, elastic jobs in
// job_runner_elastic_test.cpp, limits of time and stalls in job_runner_time_test.cpp.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launcher/state/exit_codes.h"
#include "launcher/tree/tree_scan.h"
#include "tests/unit/launcher/folder.h"
#include "tests/unit/launcher/run/job_scenario.h"

namespace hvd::launch::job_runner_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

namespace {

Error no_answer(const std::string& host) {
  return {Code::kUnreachable, host + ": connection refused"};
}

}  // namespace

TEST_CASE("a job in which all goes well shows what its ranks print, says good-bye and ends with 0") {
  JobScenario job;
  for (int number : {1, 2}) {
    FakeNode& node = job.node(number);
    node.on_started = [&node, number] {
      node.print(number - 1, "hello from " + std::to_string(number) + "\n");
      node.exit_all(exited(0));
    };
  }
  CHECK(job.run() == 0);
  CHECK(job.shown().find("[0]<stdout>:hello from 1\n") != std::string::npos);
  CHECK(job.shown().find("[1]<stdout>:hello from 2\n") != std::string::npos);
  CHECK(job.news.lines == std::vector<std::string>{"all ready", "ended"});
  for (int number : {1, 2}) {
    CHECK(job.node(number).told.front().first == AgentMessage::kWelcome);
    CHECK(job.node(number).count(AgentMessage::kBye) == 1);
    CHECK(job.node(number).count(AgentMessage::kStop) == 0);
  }
}

TEST_CASE("no rank starts before every node has answered") {
  JobScenario job;
  job.node(2).is_silent = true;
  job.at(3s, [&] {
    CHECK(job.node(1).count(AgentMessage::kWelcome) == 1);
    CHECK(job.node(1).count(AgentMessage::kStart) == 0);
    job.runner->on_signal(SIGTERM);
  });
  CHECK(job.run() == 128 + SIGTERM);
}

TEST_CASE("a host that never answers is named after --start-timeout, and nothing was started") {
  JobScenario job;
  job.node(2).is_silent = true;
  CHECK(job.run() == exit_code::kUnreachable);
  CHECK(job.told("cause: ").find("node2") != std::string::npos);
  CHECK(job.told("cause: ").find("--start-timeout") != std::string::npos);
  CHECK(job.count("slow start") == 11);  // every 5 s, until 60 s are over
  CHECK(job.time.passed() >= 60s);
  CHECK(job.time.passed() < 61s);
  CHECK(job.node(1).count(AgentMessage::kStart) == 0);
  CHECK(job.node(1).count(AgentMessage::kBye) == 1);
}

TEST_CASE("the time of --start-timeout begins anew while an agent is brought to a host, ten times at most") {
  for (const int rounds : {2, 100}) {
    CAPTURE(rounds);
    JobScenario job;
    job.node(2).is_silent = true;
    for (int round = 1; round <= rounds; ++round) {
      job.at(60s * round - 1s, [&] { job.nodes.pushed = job.time.loop().now(); });
    }
    CHECK(job.run() == exit_code::kUnreachable);
    CHECK(job.told("cause: ").find("--start-timeout") != std::string::npos);
    CHECK(job.time.passed() >= 60s * (1 + std::min(rounds, 10)));
    CHECK(job.time.passed() < 60s * (1 + std::min(rounds, 10)) + 1s);
  }
}

TEST_CASE(
    "all hosts that cannot be reached are named, many of one reason in one line; the one that answers is let go") {
  JobScenario job("node1:1,node2:1,node3:1,node4:1,node5:1,node6:1");
  job.node(2).refusal = Error(Code::kUnreachable, "node2: the host key has changed");
  for (int number = 3; number <= 6; ++number) {
    job.node(number).refusal = no_answer("node" + std::to_string(number));
  }
  CHECK(job.run() == exit_code::kUnreachable);
  CHECK(job.count("cause: ") == 2);
  CHECK(job.told("cause: node2: ") == "the host key has changed");
  CHECK(job.told("cause: node3, node4, node5, node6: ") == "connection refused");
  CHECK(job.node(1).count(AgentMessage::kStart) == 0);
  CHECK(job.time.passed() < 1s);
}

TEST_CASE("an agent that cannot be started on this machine is a failure to start, not an unreachable host") {
  JobScenario job("localhost:1");
  job.nodes.node("localhost").refusal = Error(Code::kSystem, "localhost: cannot start the agent");
  CHECK(job.run() == exit_code::kStartFailed);
}

TEST_CASE("an agent that dies while others are awaited is named when these have answered") {
  JobScenario job;
  job.node(2).is_silent = true;
  job.at(1s, [&] { job.node(1).die(); });
  job.at(2s, [&] { CHECK(job.count("cause: ") == 0); });
  CHECK(job.run() == exit_code::kUnreachable);
  CHECK(job.count("cause: ") == 2);
  CHECK(job.told("cause: node1").find("SIGKILL") != std::string::npos);
}

TEST_CASE("a signal that comes when all ranks have ended, and before their last output is written, counts") {
  JobScenario job;
  for (int number : {1, 2}) {
    FakeNode& node = job.node(number);
    node.ends_on_bye = false;
    node.on_started = [&node] { node.exit_all(exited(0)); };
  }
  job.at(500ms, [&] { job.runner->on_signal(SIGINT); });
  CHECK(job.run() == 128 + SIGINT);
  CHECK(job.news.lines == std::vector<std::string>{"all ready", "ended"});
  CHECK(job.node(1).count(AgentMessage::kStop) == 0);
}

TEST_CASE("a signal while hosts are awaited ends the job at once") {
  JobScenario job;
  job.node(2).is_silent = true;
  job.at(1s, [&] { job.runner->on_signal(SIGINT); });
  CHECK(job.run() == 128 + SIGINT);
  CHECK(job.node(1).count(AgentMessage::kStart) == 0);
  CHECK(job.time.passed() < 2s);
}

TEST_CASE("a program that is not there is 127, another failure to start our own code; the others are stopped") {
  const auto fails_with = [](Code code) {
    JobScenario job;
    job.node(2).start_failure = StartFailedMessage{1, Error(code, "no such program: 'train'")};
    const int result = job.run();
    CHECK(job.told("cause: ").find("rank 1 on node2") != std::string::npos);
    CHECK(job.node(1).stop().signal == SIGTERM);
    return result;
  };
  CHECK(fails_with(Code::kNotFound) == exit_code::kNoProgram);
  CHECK(fails_with(Code::kSystem) == exit_code::kStartFailed);
}

TEST_CASE("a GPU that a host does not have is a failure to start before any rank runs") {
  JobScenario job("node1:1,node2:1@3");
  CHECK(job.run() == exit_code::kStartFailed);
  CHECK(job.told("cause: ").find("node2") != std::string::npos);
  CHECK(job.node(1).count(AgentMessage::kStart) == 0);
  CHECK(job.node(2).count(AgentMessage::kStart) == 0);
}

TEST_CASE("an interface that no host has is a failure to start before any rank runs") {
  JobScenario job;
  job.spec.interfaces = {"ib0"};
  CHECK(job.run() == exit_code::kStartFailed);
  CHECK(job.told("cause: ").find("ib0") != std::string::npos);
  CHECK(job.node(1).count(AgentMessage::kStart) == 0);
}

TEST_CASE("a rank that fails is reported first, then the others are told and stopped; its code is the job's") {
  JobScenario job("node1:2,node2:1");
  job.at(1s, [&] {
    job.node(1).print(1, "no such batch\n", StreamId::kStderr);
    job.node(1).exit(1, exited(3));
  });
  CHECK(job.run() == 3);
  CHECK(job.told("cause: ").find("rank 1 on node1") != std::string::npos);
  CHECK(job.news.last_errors == std::vector<std::string>{"no such batch"});
  CHECK(job.news.reports == 1);
  FakeNode& other = job.node(2);
  REQUIRE(other.told.size() >= 4);
  CHECK(other.body(AgentMessage::kNotice).find("rank 1") != std::string::npos);
  CHECK(other.told[2].first == AgentMessage::kNotice);
  CHECK(other.told[3].first == AgentMessage::kStop);
  CHECK(other.stop().signal == SIGTERM);
  CHECK(other.stop().grace_ms == 10'000);
  CHECK(job.time.passed() < 2s);
  // what the rank printed stands before the report of it
  CHECK(job.shown().find("no such batch") < job.shown().find("cause: "));
}

TEST_CASE("a rank that a signal ends gives the code of a shell") {
  JobScenario job;
  job.at(1s, [&] { job.node(1).exit(0, killed(SIGSEGV)); });
  CHECK(job.run() == 128 + SIGSEGV);
  CHECK(job.told("cause: ").find("SIGSEGV") != std::string::npos);
}

TEST_CASE("of two ranks that fail the first is the cause, and there is one report") {
  JobScenario job;
  job.at(1000ms, [&] { job.node(2).exit(1, exited(5)); });
  job.at(1000ms, [&] { job.node(1).exit(0, exited(4)); });
  CHECK(job.run() == 5);
  CHECK(job.news.reports == 1);
  CHECK(job.told("cause: ").find("rank 1") != std::string::npos);
}

TEST_CASE("a rank whose traceback came first is the cause, although another one ends before it") {
  JobScenario job;
  job.at(1s, [&] {
    job.node(2).print(1, "Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: x\n",
                      StreamId::kStderr);
  });
  job.at(2s, [&] { job.node(1).exit(0, exited(9)); });
  job.at(4s, [&] {
    CHECK(job.news.reports == 0);  // it is awaited
    job.node(2).exit(1, exited(1));
  });
  CHECK(job.run() == 1);
  CHECK(job.told("cause: ").find("rank 1") != std::string::npos);
}

TEST_CASE("a rank that may have failed first but does not end is awaited for the time of grace") {
  JobScenario job;
  job.spec.grace = 7s;
  job.at(1s, [&] {
    job.node(2).print(1, "Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: x\n",
                      StreamId::kStderr);
  });
  job.at(2s, [&] { job.node(1).exit(0, exited(9)); });
  CHECK(job.run() == 9);
  CHECK(job.time.passed() >= 9s);
  CHECK(job.time.passed() < 10s);
}

TEST_CASE("a rank that tells of its failure is spared the signal, and its end gives the code") {
  JobScenario job;
  job.at(1s, [&] { job.node(1).fail(0, {FailureNews::Kind::kEnds, -1, 1, "ValueError: x"}); });
  job.at(3s, [&] {
    CHECK(job.count("failing: ") == 1);
    CHECK(job.news.reports == 0);
    CHECK(job.node(1).ranks.size() == 1);
    CHECK(job.node(2).ranks.empty());
    job.node(1).exit(0, exited(17));
  });
  CHECK(job.run() == 17);
  CHECK(job.node(1).stop().spared == std::vector<std::int32_t>{0});
  CHECK(job.news.reports == 1);
}

TEST_CASE("a rank that tells of its failure and does not end is killed by its agent when grace is over") {
  JobScenario job;
  job.at(1s, [&] { job.node(1).fail(0, {FailureNews::Kind::kEnds, -1, 1, "ValueError: x"}); });
  CHECK(job.run() == 1);
  CHECK(job.told("cause: ").find("did not end within the time of grace") != std::string::npos);
  CHECK(job.time.passed() >= 11s);
  CHECK(job.time.passed() < 12s);
}

TEST_CASE("a rank that follows another names it, and the other one is the cause") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).fail(1, {FailureNews::Kind::kFollows, 0, 1, "lost rank 0"}); });
  job.at(2s, [&] { job.node(1).exit(0, killed(SIGKILL)); });
  CHECK(job.run() == 128 + SIGKILL);
  CHECK(job.told("cause: ").find("rank 0 on node1") != std::string::npos);
}

TEST_CASE("Ctrl-C is passed on to every rank and is the cause") {
  JobScenario job;
  job.at(1s, [&] { job.runner->on_signal(SIGINT); });
  CHECK(job.run() == 128 + SIGINT);
  CHECK(job.told("cause: ") == "hvdrun got SIGINT");
  CHECK(job.node(1).stop().signal == SIGINT);
  CHECK(job.node(2).stop().signal == SIGINT);
  CHECK(job.time.passed() < 2s);
}

TEST_CASE("a second Ctrl-C kills the ranks at once") {
  JobScenario job;
  const auto ignores = [](FakeNode& node) { node.obeys = false; };
  ignores(job.node(1));
  job.at(1s, [&] { job.runner->on_signal(SIGINT); });
  job.at(2s, [&] {
    CHECK(job.node(1).ranks.size() == 1);
    job.node(1).obeys = true;
    job.runner->on_signal(SIGINT);
  });
  CHECK(job.run() == 128 + SIGINT);
  CHECK(job.node(1).stop(1).signal == SIGKILL);
  CHECK(job.news.ranks[0].status == killed(SIGKILL));
  CHECK(job.time.passed() < 3s);
}

TEST_CASE("a third Ctrl-C leaves, and names the nodes that have not said that their ranks ended") {
  JobScenario job;
  job.node(2).obeys = false;
  for (const Duration when : {1s, 2s, 3s}) {
    job.at(when, [&] { job.runner->on_signal(SIGINT); });
  }
  CHECK(job.run() == 128 + SIGINT);
  CHECK(job.count("note: it has not said") == 1);
  CHECK(job.time.passed() < 6s);
}

TEST_CASE("a node that does not report its end is left after the grace period and some time") {
  JobScenario job;
  job.spec.grace = 5s;
  job.node(2).obeys = false;
  job.at(1s, [&] { job.node(1).exit(0, exited(3)); });
  CHECK(job.run() == 3);
  CHECK(job.count("note: it has not said") == 1);
  CHECK(job.time.passed() >= 21s);
  CHECK(job.time.passed() < 24s);
}

TEST_CASE("SIGUSR1 and SIGUSR2 go to the ranks and end nothing") {
  JobScenario job;
  job.at(0s, [&] { job.runner->on_signal(SIGUSR1); });  // no rank is there yet
  job.at(1s, [&] { job.runner->on_signal(SIGUSR1); });
  job.at(2s, [&] { job.runner->on_signal(SIGUSR2); });
  job.at(3s, [&] { job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0)); });
  CHECK(job.run() == 0);
  CHECK(decode_number(job.node(2).body(AgentMessage::kForward, 0)).value() == SIGUSR1);
  CHECK(decode_number(job.node(2).body(AgentMessage::kForward, 1)).value() == SIGUSR2);
}

TEST_CASE("servers are stopped when all others have ended, and how they end is no failure") {
  JobScenario job;
  job.spec.servers = {0};
  job.at(1s, [&] { job.node(2).exit(1, exited(0)); });
  CHECK(job.run() == 0);
  CHECK(job.node(1).stop().signal == SIGTERM);
  CHECK(job.news.ranks[0].status == killed(SIGTERM));
}

TEST_CASE("a rank that has joined and fails is started again by its own node, and all others hear of it") {
  JobScenario job;
  job.spec.restart_limit = 1;
  job.at(1s, [&] { job.node(1).join(0), job.node(2).join(1); });
  job.at(2s, [&] { job.node(2).exit(1, exited(3)); });
  job.at(3s, [&] {
    CHECK(job.told("restarted: ") == "1");
    const auto own = GenerationMessage::decode(job.node(2).body(AgentMessage::kGeneration)).value();
    const auto others = GenerationMessage::decode(job.node(1).body(AgentMessage::kGeneration)).value();
    REQUIRE(own.start.has_value());
    CHECK(own.start->ranks.size() == 1);
    CHECK_FALSE(others.start.has_value());
    CHECK(others.kind == GenerationMessage::Kind::kBroken);  // two ranks are wanted, and one is left
    CHECK(job.node(2).ranks.size() == 1);
    job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0));
  });
  // the first node may not end before the launcher allows it: a rank could be started again
  CHECK(job.run() == 0);
}

TEST_CASE("when the restarts are used up the next failure ends the job") {
  JobScenario job;
  job.spec.restart_limit = 1;
  job.at(1s, [&] { job.node(1).join(0), job.node(2).join(1); });
  job.at(2s, [&] { job.node(2).exit(1, exited(3)); });
  job.at(3s, [&] { job.node(2).join(1); });
  job.at(4s, [&] { job.node(2).exit(1, exited(4)); });
  CHECK(job.run() == 4);
  CHECK(job.told("cause: ").find("after 1 restart") != std::string::npos);
}

TEST_CASE("a rank that tells of its failure, may be started again and does not end is ended") {
  JobScenario job;
  job.spec.restart_limit = 1;
  job.at(1s, [&] { job.node(1).join(0), job.node(2).join(1); });
  job.at(2s, [&] { job.node(2).fail(1, {FailureNews::Kind::kEnds, -1, 1, "ValueError: x"}); });
  job.at(20s, [&] {
    CHECK(job.node(2).count(AgentMessage::kEndRank) == 1);
    CHECK(job.count("restarted: ") == 1);
    job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("what ranks post is told to all nodes when the last of them has posted") {
  JobScenario job("node1:2,node2:1");
  job.at(1s, [&] {
    job.node(1).exchange(0, "address", "a");
    job.node(2).exchange(2, "address", "c");
  });
  job.at(2s, [&] {
    CHECK(job.node(1).count(AgentMessage::kExchanged) == 0);
    job.node(1).exchange(1, "address", "b");
  });
  job.at(3s, [&] { job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0)); });
  CHECK(job.run() == 0);
  for (int number : {1, 2}) {
    const auto told = ExchangedMessage::decode(job.node(number).body(AgentMessage::kExchanged)).value();
    CHECK(told.key == "address");
    CHECK(told.values == std::vector<std::string>{"a", "b", "c"});
    CHECK(job.node(number).count(AgentMessage::kExchanged) == 1);
  }
}

TEST_CASE("who asks learns which ranks have not posted, and which of them have ended") {
  JobScenario job("node1:2,node2:2");
  job.at(1s, [&] {
    job.node(1).exchange(1, "mesh", "b");
    job.node(2).exchange(2, "mesh", "c");
    job.node(2).exit(3, exited(0));
  });
  job.at(2s, [&] {
    job.node(2).exchange(2, "?mesh", "");
    job.node(2).exchange(2, "?another", "");
  });
  job.at(3s, [&] { job.node(1).exit_all(exited(0)), job.node(2).exit(2, exited(0)); });
  CHECK(job.run() == 0);
  CHECK(job.node(1).count(AgentMessage::kExchanged) == 0);
  REQUIRE(job.node(2).count(AgentMessage::kExchanged) == 2);
  const auto told = ExchangedMessage::decode(job.node(2).body(AgentMessage::kExchanged, 0)).value();
  CHECK(told.key == "?mesh");
  CHECK(told.values == std::vector<std::string>{"0,3", "3"});
  const auto unknown = ExchangedMessage::decode(job.node(2).body(AgentMessage::kExchanged, 1)).value();
  CHECK(unknown.values == std::vector<std::string>{"", ""});
}

TEST_CASE("what was posted before a restart is not mixed with what is posted after it") {
  JobScenario job;
  job.spec.restart_limit = 1;
  job.at(1s, [&] { job.node(1).join(0), job.node(2).join(1); });
  job.at(2s, [&] { job.node(1).exchange(0, "address", "old"); });
  job.at(3s, [&] { job.node(2).exit(1, exited(3)); });
  job.at(4s, [&] {
    job.node(1).exchange(0, "address", "late", 0);  // it had not heard of the restart
    job.node(1).join(0, 0, true), job.node(2).join(1, 0, true);
    job.node(2).exchange(1, "address", "new 1", 1);
  });
  job.at(5s, [&] {
    CHECK(job.node(1).count(AgentMessage::kExchanged) == 0);
    job.node(1).exchange(0, "address", "new 0", 1);
  });
  job.at(6s, [&] {
    const auto told = ExchangedMessage::decode(job.node(2).body(AgentMessage::kExchanged)).value();
    CHECK(told.values == std::vector<std::string>{"new 0", "new 1"});
    job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("standard input waits for every reader's credit, goes to all, and ends") {
  JobScenario job;
  job.spec.input = InputMode::kAll;
  int pipe_ends[2];
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
  job.input = Fd(pipe_ends[0]);
  Fd writer(pipe_ends[1]);
  REQUIRE(::write(writer.get(), "twelve bytes", 12) == 12);
  writer.reset();
  job.at(1s, [&] { job.node(1).say(AgentMessage::kInputCredit, count_body(100)); });
  job.at(2s, [&] {
    CHECK(job.node(1).count(AgentMessage::kInput) == 0);
    job.node(2).say(AgentMessage::kInputCredit, count_body(5));
  });
  job.at(3s, [&] {
    CHECK(job.node(1).body(AgentMessage::kInput) == "twelv");
    CHECK(job.node(2).body(AgentMessage::kInput) == "twelv");
    job.node(2).say(AgentMessage::kInputOver);  // no reader is left there: the other one gets the rest
  });
  job.at(4s, [&] {
    CHECK(job.node(1).body(AgentMessage::kInput, 1) == "e bytes");
    CHECK(job.node(1).count(AgentMessage::kInputEnd) == 1);
    CHECK(job.node(2).count(AgentMessage::kInput) == 1);
    job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a reader of the output that has gone stops the job, as it would a filter") {
  JobScenario job;
  ::signal(SIGPIPE, SIG_IGN);
  int pipe_ends[2];
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
  const Fd writer(pipe_ends[1]);
  Fd(pipe_ends[0]).reset();
  job.console.out = writer.get();
  job.at(1s, [&] { job.node(1).print(0, "a line\n"); });
  CHECK(job.run() == exit_code::kReaderGone);
  CHECK(job.node(2).stop().signal == SIGTERM);
  CHECK(job.time.passed() < 2s);
}

TEST_CASE("a full disk behind standard output stops the job with our own code") {
  JobScenario job;
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full.is_open());
  job.console.out = full.get();
  job.at(1s, [&] { job.node(1).print(0, "a line\n"); });
  CHECK(job.run() == exit_code::kOutputFailed);
  CHECK(job.told("cause: ").find("cannot write to standard output") != std::string::npos);
}

TEST_CASE("a folder for the output that cannot be made is told before any host is asked") {
  JobScenario job;
  job.spec.output_dir = "/dev/null/logs";
  CHECK(job.run() == exit_code::kOutputFailed);
  CHECK(job.told("refused: ").find("--output-filename") != std::string::npos);
  CHECK(job.node(1).attempts == 0);
}

TEST_CASE("a reader that takes nothing does not keep a failed job from ending") {
  JobScenario job;
  int pipe_ends[2];
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
  const Fd reader(pipe_ends[0]);
  const Fd writer(pipe_ends[1]);
  job.console.out = writer.get();
  job.at(1s, [&] {
    job.node(1).print(0, std::string(300'000, 'x') + "\n");
    job.node(1).exit(0, exited(3));
  });
  CHECK(job.run() == 3);
  CHECK(job.told("note: ").find("were not written") != std::string::npos);
  CHECK(job.time.passed() < 1s + job.spec.grace + 2s);
}

TEST_CASE("a node may send more when the console has taken what it sent") {
  JobScenario job;
  job.at(1s, [&] { job.node(1).print(0, std::string(100'000, 'x') + "\n"); });
  job.at(2s, [&] {
    std::uint64_t granted = 0;
    for (std::size_t number = 0; number < job.node(1).count(AgentMessage::kCredit); ++number) {
      granted += decode_count(job.node(1).body(AgentMessage::kCredit, number)).value();
    }
    CHECK(granted == 100'001);
    job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0));
  });
  CHECK(job.run() == 0);
  CHECK(job.node(2).count(AgentMessage::kCredit) == 0);
}

TEST_CASE("what a rank's child prints after the rank has ended is shown") {
  JobScenario job;
  job.node(1).says_done = false;
  job.at(1s, [&] { job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0)); });
  job.at(2s, [&] {
    job.node(1).print(0, "late words\n");
    job.node(1).say(AgentMessage::kDone);
  });
  CHECK(job.run() == 0);
  CHECK(job.shown().find("late words") != std::string::npos);
}

TEST_CASE("the end is put off for results as long as these come, and for nothing else that a node says") {
  const Folder folder;
  write_file(folder.path + "/train.py", "");
  TreeEntry entry;
  entry.path = "model.pt";
  entry.size = std::uint64_t{100} << 20U;
  const auto ended_after = [&](std::size_t bytes, int interrupts) {
    JobScenario job;
    job.tree = scan_tree(folder.path, {}).value();
    job.spec.sync_dir = folder.path;
    job.spec.sync_back = {"*.pt"};
    for (const int number : {1, 2}) {
      job.node(number).says_done = number == 2;
      TreeHere here;
      here.path = "/scratch/files";
      job.at(100ms, [&job, number, here] { job.node(number).say(AgentMessage::kTreeHere, here.encode()); });
    }
    for (int at = 1; at <= interrupts; ++at) {
      job.at(std::chrono::seconds(at), [&job] { job.runner->on_signal(SIGINT); });
    }
    job.at(1500ms, [&job, entry] { job.node(1).say(AgentMessage::kResultList, TreeList{true, {entry}}.encode()); });
    const std::string content(bytes, 'x');
    FilePiece piece;
    piece.bytes = content;
    const std::string body = FileBytes{{piece}}.encode();
    for (int at = 2; at < 92; ++at) {
      job.at(std::chrono::seconds(at), [&job, &body] { job.node(1).say(AgentMessage::kResultBytes, body); });
    }
    CHECK(job.run() == 128 + SIGINT);
    return job.time.passed() - job.spec.grace;
  };
  CHECK(ended_after(1U << 20U, 1) > 90s);
  CHECK(ended_after(0, 1) < 20s);
  CHECK(ended_after(100, 1) < 20s);
  CHECK(ended_after(1U << 20U, 2) < 20s);
}

}  // namespace hvd::launch::job_runner_test
