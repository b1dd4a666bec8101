// launcher/run/job_runner: connections that break, nodes that are lost, and agents that say what they should not.
#include <signal.h>

#include <doctest/doctest.h>

#include "launcher/state/exit_codes.h"
#include "tests/unit/launcher/run/job_scenario.h"

namespace hvd::launch::job_runner_nodes_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

namespace {

void end_well(JobScenario& job) {
  job.node(1).exit_all(exited(0));
  job.node(2).exit_all(exited(0));
}

// Runs a job whose second agent does something strange after a second, and checks that it alone is blamed.
std::string strange(const std::function<void(FakeNode&)>& act) {
  JobScenario job;
  job.at(1s, [&] { act(job.node(2)); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.node(1).stop().signal == SIGTERM);
  CHECK(job.node(2).attempts == 1);  // a connection that speaks nonsense is not made again
  CHECK(job.time.passed() < 2s);
  CHECK(job.count("cause: ") == 1);
  return job.told("cause: ");
}

}  // namespace

TEST_CASE("a connection that breaks and comes back costs no line and doubles none") {
  JobScenario job;
  FakeNode& node = job.node(2);
  std::string expected;
  for (int line = 0; line < 40; ++line) {
    const std::string text = "line " + std::to_string(line) + "\n";
    expected += "[1]<stdout>:" + text;
    job.at(1s + line * 100ms, [&node, text] { node.print(1, text); });
  }
  node.refusal.reset();
  job.at(2050ms, [&] {
    node.print(1, "");  // under way when it breaks
    node.cut();
    node.refusal = Error(Code::kUnreachable, "no route to host");
  });
  job.at(3500ms, [&] { node.refusal.reset(); });
  job.at(20s, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(job.shown().find(expected) == std::string::npos);  // what hvdrun says of it stands between
  std::string lines;
  std::string rest = job.shown();
  for (std::size_t at = rest.find('\n'); at != std::string::npos; at = rest.find('\n')) {
    const std::string line = rest.substr(0, at + 1);
    rest.erase(0, at + 1);
    lines += line.starts_with("[1]") ? line : "";
  }
  CHECK(lines == expected);
  CHECK(job.told("away: ") == "node2: connection reset by peer");
  CHECK(job.told("back: ") == "node2");
  CHECK(node.attempts > 2);
  CHECK(job.node(1).attempts == 1);
}

TEST_CASE("a rank that fails while its node is away is the cause when the node is back") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).cut(), job.node(2).is_silent = true; });
  job.at(5s, [&] { job.node(2).exit(1, exited(6)); });
  job.at(10s, [&] {
    CHECK(job.news.reports == 0);
    job.node(2).is_silent = false;
  });
  CHECK(job.run() == 6);
  CHECK(job.told("cause: ").find("rank 1 on node2") != std::string::npos);
}

TEST_CASE("a node that is away is stopped when it is back") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).cut(), job.node(2).refusal = Error(Code::kUnreachable, "no route"); });
  job.at(2s, [&] { job.node(1).exit(0, exited(3)); });
  job.at(8s, [&] {
    CHECK(job.node(2).ranks.size() == 1);
    job.node(2).refusal.reset();
  });
  CHECK(job.run() == 3);
  CHECK(job.node(2).stop().signal == SIGTERM);
  CHECK(job.node(2).ranks.empty());
  CHECK(job.count("note: ") == 0);
}

TEST_CASE("a node that stays away while the job is stopped is left, and named") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).cut(), job.node(2).refusal = Error(Code::kUnreachable, "no route"); });
  job.at(2s, [&] { job.node(1).exit(0, exited(3)); });
  CHECK(job.run() == 3);
  CHECK(job.count("note: it has not said") == 1);
  CHECK(job.told("note: ").find("at the latest after") != std::string::npos);
  CHECK(job.time.passed() < 2s + job.spec.grace + 15s + 3s);
}

TEST_CASE("a node that does not come back within --reconnect-timeout is lost, and ends the job") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).cut(), job.node(2).refusal = Error(Code::kUnreachable, "no route to host"); });
  CHECK(job.run() == exit_code::kNodeLost);
  const std::string cause = job.told("cause: ");
  CHECK(cause.find("node2") != std::string::npos);
  CHECK(cause.find("connection reset by peer") != std::string::npos);
  CHECK(cause.find("no route to host") != std::string::npos);
  CHECK(job.time.passed() >= 61s);
  CHECK(job.time.passed() < 63s);
  CHECK(job.node(1).stop().signal == SIGTERM);
}

TEST_CASE("an attempt to reconnect that hangs is given up, and the next one may succeed") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).cut(), job.node(2).is_silent = true; });
  job.at(10s, [&] { job.node(2).is_silent = false; });  // the attempt that is under way still hangs
  job.at(40s, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(job.node(2).attempts == 3);
  CHECK(job.count("back: ") == 1);
}

TEST_CASE("a node that does not know the session any more is lost at once") {
  JobScenario job;
  job.node(2).lost_session = "its agent has ended";
  job.at(1s, [&] { job.node(2).cut(); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.told("cause: ").find("its agent has ended") != std::string::npos);
  CHECK(job.time.passed() < 2s);
}

TEST_CASE("an agent that is killed is not waited for") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).die(); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.told("cause: ").find("rank 1") != std::string::npos);
  CHECK(job.count("away: ") == 0);
  CHECK(job.count("lost: node2") == 1);
  CHECK(job.node(2).attempts == 1);
  CHECK(job.time.passed() < 2s);
}

TEST_CASE("an agent that ends because somebody asked it to ends the job, with its reason") {
  JobScenario job;
  job.at(1s, [&] {
    job.node(2).say(AgentMessage::kEnding, "it got SIGTERM");
    job.node(2).exit(1, killed(SIGTERM));
  });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.told("cause: ").find("node2 ends, with rank 1: it got SIGTERM") != std::string::npos);
}

TEST_CASE("an agent that ends when its ranks have ended in order takes nothing with it") {
  for (const bool is_done : {true, false}) {  // it may still be ending what they left
    JobScenario job;
    job.node(2).says_done = is_done;
    job.at(1s, [&] { job.node(2).exit_all(exited(0)); });
    job.at(2s, [&] { job.node(2).say(AgentMessage::kEnding, "it got SIGTERM"); });
    job.at(3s, [&] {
      CHECK(job.node(1).count(AgentMessage::kStop) == 0);
      if (!is_done) {
        job.node(2).say(AgentMessage::kDone);
      }
      job.node(1).exit_all(exited(0));
    });
    CHECK(job.run() == 0);
    CHECK(job.count("cause: ") == 0);
    CHECK(job.count("lost: ") == 0);
  }
}

TEST_CASE("without --reconnect-timeout a connection that breaks is a node that is lost") {
  JobScenario job;
  job.spec.reconnect_timeout = Duration::zero();
  job.at(1s, [&] { job.node(2).cut(); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.node(2).attempts == 1);
}

TEST_CASE("the agent of this machine has no heartbeats and no second connection") {
  JobScenario job("localhost:1");
  FakeNode& node = job.nodes.node("localhost");
  node.opened = Opened();
  node.opened.is_local = true;
  job.at(200s, [&] { node.cut(); });
  CHECK(job.run() == exit_code::kNodeLost);
  const auto welcome = WelcomeMessage::decode(node.body(AgentMessage::kWelcome)).value();
  CHECK(welcome.heartbeat_ms == 0);
  CHECK(welcome.reconnect_ms == 0);
  CHECK(node.attempts == 1);
}

TEST_CASE("a connection through which nothing comes for three heartbeats is made anew") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).fall_silent(); });
  job.at(100s, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(job.told("away: ").find("no sign of life") != std::string::npos);
  CHECK(job.node(2).attempts == 2);
}

TEST_CASE("time in which hvdrun itself was stopped is no silence of its nodes") {
  JobScenario job;
  job.at(15s, [&] { job.time.advance(1h); });
  job.at(2h, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(job.count("away: ") == 0);
}

TEST_CASE("a node that has said Done and then breaks was not lost") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).exit(1, exited(0)); });
  job.at(2s, [&] { job.node(2).cut(); });
  job.at(3s, [&] { job.node(1).exit(0, exited(0)); });
  CHECK(job.run() == 0);
  CHECK(job.count("lost: ") == 0);
  CHECK(job.count("away: ") == 0);
}

TEST_CASE("agents that do not end after good-bye are not awaited for long") {
  JobScenario job;
  job.node(1).ends_on_bye = false;
  job.at(1s, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(job.time.passed() >= 3s);
  CHECK(job.time.passed() < 4s);
}

TEST_CASE("when all nodes are lost the job ends without waiting for any") {
  JobScenario job;
  job.at(1s, [&] { job.node(1).die(), job.node(2).die(); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.count("lost: ") == 2);
  CHECK(job.news.reports == 1);
  CHECK(job.time.passed() < 2s);
}

TEST_CASE("a node lost while the job is stopped changes neither cause nor code") {
  JobScenario job;
  job.node(2).obeys = false;
  job.at(1s, [&] { job.node(1).exit(0, exited(3)); });
  job.at(2s, [&] { job.node(2).die(); });
  CHECK(job.run() == 3);
  CHECK(job.news.reports == 1);
  CHECK(job.time.passed() < 3s);
}

TEST_CASE("bytes that are no frame end the session of that node, which is named") {
  CHECK(strange([](FakeNode& node) { node.say_raw("HTTP/1.1 400 Bad Request\r\n\r\n"); }).find("node2") !=
        std::string::npos);
}

TEST_CASE("bytes that are no frame before the first message are a host that could not be reached") {
  JobScenario job;
  job.node(2).banner = "Last login: Mon Nov 23 from 10.0.0.9\r\n";
  CHECK(job.run() == exit_code::kUnreachable);
  CHECK(job.count("lost: node2") == 1);
  CHECK(job.count("cause: ") == 1);
  CHECK(job.node(1).count(AgentMessage::kStart) == 0);
}

TEST_CASE("an agent that speaks of a rank of another node is not believed") {
  CHECK(strange([](FakeNode& node) { node.print(0, "not mine\n"); }).find("rank 0") != std::string::npos);
  CHECK(strange([](FakeNode& node) { node.say(AgentMessage::kStarted, number_body(7, 1)); }).find("rank 7") !=
        std::string::npos);
  CHECK(strange([](FakeNode& node) { node.join(-1); }).find("rank -1") != std::string::npos);
  strange([](FakeNode& node) { node.exchange(0, "address", "forged"); });
}

TEST_CASE("an agent that sends a launcher's message, or a second first one, is not believed") {
  strange([](FakeNode& node) { node.say(AgentMessage::kStop, StopMessage{SIGTERM, 0}.encode()); });
  strange([](FakeNode& node) { node.say_raw(agent_frame(AgentMessage::kReady, node.ready.encode())); });
  strange([](FakeNode& node) { node.say(static_cast<AgentMessage>(999)); });
}

TEST_CASE("an agent that acknowledges what was never sent is not believed") {
  strange([](FakeNode& node) { node.say_raw(agent_frame(AgentMessage::kAck, count_body(1'000'000))); });
}

TEST_CASE("a message that ends before its fields do is not believed") {
  strange([](FakeNode& node) { node.say(AgentMessage::kExited, "\x01"); });
  strange([](FakeNode& node) { node.say(AgentMessage::kOutput, ""); });
}

TEST_CASE("an agent that posts the same key twice is warned of, and the job goes on") {
  JobScenario job;
  job.at(1s, [&] {
    job.node(1).exchange(0, "address", "a");
    job.node(1).exchange(0, "address", "b");
    job.node(2).exchange(1, "address", "c");
  });
  job.at(2s, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(ExchangedMessage::decode(job.node(2).body(AgentMessage::kExchanged)).value().values.size() == 2);
}

TEST_CASE("a problem that an agent tells is shown, and the job goes on") {
  JobScenario job;
  job.at(1s, [&] { job.node(2).say(AgentMessage::kProblem, "process 7 cannot be killed"); });
  job.at(2s, [&] { end_well(job); });
  CHECK(job.run() == 0);
  CHECK(job.told("note: ") == "process 7 cannot be killed");
}

TEST_CASE("whoever has started the agents and has gone ends the job, and is the cause") {
  JobScenario job;
  job.spec.launcher = LauncherKind::kSpark;
  job.at(1s, [&] { job.runner->on_engine_gone(Error(Code::kLostPeer, "Spark has ended its tasks")); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.told("cause: ") == "while the ranks ran, Spark has ended its tasks");
}

}  // namespace hvd::launch::job_runner_nodes_test
