// launcher/run/job_runner: limits of time, and ranks that wait for too long, in a time that goes by itself
// (job_runner_test.cpp).
#include <signal.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "launcher/state/exit_codes.h"
#include "tests/unit/launcher/run/job_scenario.h"

namespace hvd::launch::job_runner_time_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

namespace {

// What a node says whose rank 0 has waited for a minute.
std::string stalled() {
  SampleMessage sample;
  sample.ranks.push_back({0, 1, 0, 0, true, {1, 8, "allreduce", "x", 60'000, {}}});
  return sample.encode();
}

}  // namespace

TEST_CASE("--timeout counts from the start of the ranks, stops the job, and has timeout(1)'s code") {
  JobScenario job;
  job.spec.timeout = 30s;
  CHECK(job.run() == exit_code::kTimedOut);
  CHECK(job.told("cause: ").find("--timeout") != std::string::npos);
  CHECK(job.time.passed() >= 30s);
  // These agents do not say where their ranks are, for which hvdrun waits.
  CHECK(job.time.passed() < 40s);
  CHECK(job.node(1).stop().signal == SIGTERM);
}

TEST_CASE("a rank that waits for too long makes hvdrun ask all nodes where their ranks are, once") {
  JobScenario job;
  job.spec.stall_after = 60s;
  job.at(70s, [&] { job.node(1).say(AgentMessage::kSample, stalled()); });
  job.at(200s, [&] { job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0)); });
  CHECK(job.run() == 0);
  CHECK(job.told("note: rank 0 has waited for 60 s in allreduce 'x': ").starts_with("stacks of 0 of 2 running ranks"));
  for (const int node : {1, 2}) {
    const auto& told = job.node(node).told;
    CHECK(std::count_if(told.begin(), told.end(),
                        [](const auto& message) { return message.first == AgentMessage::kAskStacks; }) == 1);
  }
}

TEST_CASE("a stall is found a quarter of its time later at most") {
  JobScenario job;
  job.spec.stall_after = 60s;
  job.at(200s, [&] { job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0)); });
  CHECK(job.run() == 0);
  const auto watch = WatchMessage::decode(job.node(1).body(AgentMessage::kWatch)).value();
  // What hvdrun sees may be as old as the time between two samples, and it looks as often as it gets them.
  CHECK(2 * std::chrono::milliseconds(watch.interval_ms) <= 15s);
}

TEST_CASE("what ranks wait while the job is suspended is no stall") {
  const auto before = ::signal(SIGTSTP, SIG_IGN);  // this process itself goes on
  JobScenario job;
  job.spec.stall_after = 60s;
  job.at(65s, [&] { job.runner->on_signal(SIGTSTP); });
  job.at(68s, [&] { job.node(1).say(AgentMessage::kSample, stalled()); });
  job.at(120s, [&] { CHECK(job.node(1).count(AgentMessage::kAskStacks) == 0); });
  job.at(150s, [&] {
    CHECK(job.node(1).count(AgentMessage::kAskStacks) == 1);  // it has not gone on
    job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0));
  });
  CHECK(job.run() == 0);
  ::signal(SIGTSTP, before);
}

TEST_CASE("a job that ends shows no stacks of ranks that stall while they are stopped") {
  JobScenario job;
  job.spec.stall_after = 60s;
  job.spec.grace = 100s;
  job.node(1).obeys = false;
  job.at(65s, [&] { job.node(2).exit(1, exited(3)); });
  job.at(66s, [&] { job.node(1).say(AgentMessage::kSample, stalled()); });
  CHECK(job.run() == 3);
  CHECK(job.time.passed() > 100s);
  CHECK(job.count("note: rank 0 has waited") == 0);
  CHECK(job.node(1).count(AgentMessage::kAskStacks) == 0);
}

TEST_CASE("stacks that come when the job has begun to end are not shown") {
  JobScenario job;
  job.spec.stall_after = 60s;
  // At 67.5 s it asks, and no agent answers.
  job.at(65s, [&] { job.node(1).say(AgentMessage::kSample, stalled()); });
  job.at(70s, [&] { job.runner->on_signal(SIGTERM); });
  CHECK(job.run() == 128 + SIGTERM);
  CHECK(job.node(1).count(AgentMessage::kAskStacks) == 1);
  CHECK(job.count("note: rank 0 has waited") == 0);
}

TEST_CASE("a job that ends in time hears nothing of --timeout or of --start-timeout") {
  JobScenario job;
  job.spec.timeout = 1000s;
  job.at(999s, [&] { job.node(1).exit(0, exited(0)), job.node(2).exit(1, exited(0)); });
  CHECK(job.run() == 0);
  CHECK(job.count("cause: ") == 0);
  CHECK(job.count("slow start") == 0);
}

}  // namespace hvd::launch::job_runner_time_test
