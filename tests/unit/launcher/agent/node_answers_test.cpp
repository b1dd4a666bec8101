// launcher/agent/node_answers: which questions an agent answers before, while and after its ranks run.
#include "launcher/agent/node_answers.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/still_clock.h"

namespace hvd::launch::node_answers_test {
namespace {

constexpr int kRank = 3;

// The answers of an agent whose only rank is this process.
struct Agent {
  hvd::test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::vector<std::pair<AgentMessage, std::string>> said;
  NodeAnswers answers{*loop,
                      {"PATH=/usr/bin:/bin"},
                      {[] { return std::vector<std::pair<int, pid_t>>{{kRank, ::getpid()}}; },
                       [this](AgentMessage type, std::string_view body) { said.emplace_back(type, body); }}};

  void wait_a_second() {
    clock.advance(std::chrono::seconds(1));
    REQUIRE(loop->turn(Deadline::after(Duration::zero())).ok());
  }
};

}  // namespace

TEST_CASE("an agent answers a check between its launcher's welcome and the end, and takes no order") {
  Agent agent;
  CHECK(!agent.answers.takes(AgentMessage::kAskClock));  // it does not know yet who asks
  CHECK(!agent.answers.takes(AgentMessage::kStart));
  agent.answers.admit(JobSecret{});
  REQUIRE(agent.answers.takes(AgentMessage::kAskClock));
  CHECK(!agent.answers.takes(AgentMessage::kStart));
  REQUIRE(agent.answers.on_question(AgentMessage::kAskClock, number_body(4)).ok());
  REQUIRE(agent.said.size() == 1);
  CHECK(agent.said.back().first == AgentMessage::kClock);
  CHECK(!agent.answers.on_question(AgentMessage::kWatch, "x").ok());
  agent.answers.let_go();
  CHECK(!agent.answers.takes(AgentMessage::kAskClock));
  // A launcher asks for stacks whenever a user does, also of an agent that is ending.
  CHECK(agent.answers.takes(AgentMessage::kAskStacks));
  CHECK(agent.answers.on_question(AgentMessage::kAskStacks, StacksRequest{1, false, 1000}.encode()).ok());
  CHECK(agent.said.size() == 1);
}

TEST_CASE("samples tell of the ranks until these have ended; who asks later hears nothing, and is not refused") {
  Agent agent;
  const std::string each_second = WatchMessage{1000, false}.encode();
  REQUIRE(agent.answers.on_question(AgentMessage::kWatch, each_second).ok());
  agent.wait_a_second();
  REQUIRE(agent.said.size() == 1);
  CHECK(agent.said.back().first == AgentMessage::kSample);
  const SampleMessage sample = SampleMessage::decode(agent.said.back().second).value();
  REQUIRE(sample.ranks.size() == 1);
  CHECK(sample.ranks.front().rank == kRank);
  agent.answers.tell_last(kRank, ::getpid());
  REQUIRE(agent.said.size() == 2);
  CHECK(SampleMessage::decode(agent.said.back().second).value().is_last);
  agent.answers.stop_sampling();
  agent.wait_a_second();
  agent.answers.tell_last(kRank, ::getpid());
  CHECK(!agent.answers.owns(::getpid()));
  CHECK(agent.answers.takes(AgentMessage::kWatch));
  CHECK(agent.answers.on_question(AgentMessage::kWatch, each_second).ok());
  agent.wait_a_second();
  CHECK(agent.said.size() == 2);
}

}  // namespace hvd::launch::node_answers_test
