// launcher/check/host_check: one host's agent is asked, and answers as a test says.
#include "launcher/check/host_check.h"

#include <chrono>
#include <utility>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"

namespace hvd::launch::host_check_test {
namespace {

constexpr Duration kAhead = std::chrono::hours(1);

struct AskedHost {
  JobSpec spec;
  CheckedHost host;
  std::vector<std::pair<AgentMessage, std::string>> asked;
  HostCheck check{spec, true, host,
                  [this](AgentMessage type, const std::string& body) { asked.emplace_back(type, body); }};

  AskedHost() { host.plan = place(parse_host_list("node1").value(), 0).value().nodes.front(); }

  // Answers the last question about the clock; the host's is ahead of ours.
  Result<void> tell_clock() {
    const auto number = static_cast<std::uint32_t>(decode_number(asked.back().second).value());
    const Duration now = std::chrono::system_clock::now().time_since_epoch() + kAhead;
    return check.on_answer(AgentMessage::kClock, ClockMessage{number, now.count()}.encode());
  }

  // Returns what its agent is asked once it has told of its clock.
  SurveyRequest survey() {
    check.begin();
    while (asked.back().first == AgentMessage::kAskClock) {
      REQUIRE(tell_clock().ok());
    }
    REQUIRE(asked.back().first == AgentMessage::kAskSurvey);
    return SurveyRequest::decode(asked.back().second).value();
  }
};

}  // namespace

TEST_CASE("a host is asked for its clock, then for the rest, and is settled when all of it is known") {
  AskedHost it;
  it.spec.start_timeout = std::chrono::seconds(20);
  const SurveyRequest survey = it.survey();
  CHECK(it.asked.size() > 2);  // one answer about a clock may have come late
  REQUIRE(it.host.clock);
  CHECK(std::chrono::abs(it.host.clock->offset - kAhead) <= it.host.clock->uncertainty + Duration(1));
  CHECK(survey.programs == std::vector<std::string>{"python", "python3"});
  CHECK(survey.start.argv == std::vector<std::string>{"python"});
  CHECK(survey.wants_mpirun);
  CHECK(survey.patience_ms == 10'000);  // its answer comes within --start-timeout
  REQUIRE(it.check.on_answer(AgentMessage::kSoftware, SoftwareSurvey().encode()).ok());
  CHECK(!it.check.is_settled());
  REQUIRE(it.check.on_answer(AgentMessage::kSystem, SystemSurvey().encode()).ok());
  CHECK(it.check.is_settled());
}

TEST_CASE("a host that is lost is settled, whatever it has not answered") {
  AskedHost it;
  it.check.begin();
  CHECK(!it.check.is_settled());
  it.host.error = Error(Code::kLostPeer, "gone");
  CHECK(it.check.is_settled());
}

TEST_CASE("a program that --sync brings is not looked for on another machine, and is on this one") {
  for (const bool is_local : {false, true}) {
    CAPTURE(is_local);
    AskedHost it;
    it.spec.argv = {"bin/train", "--fast"};
    it.spec.cwd = it.spec.sync_dir = "/home/me/job";
    it.host.opened.is_local = is_local;
    const SurveyRequest survey = it.survey();
    CHECK(survey.start.argv == it.spec.argv);
    CHECK(survey.start.cwd == (is_local ? "/home/me/job" : ""));
    CHECK(survey.programs == (is_local ? std::vector<std::string>{"bin/train"} : std::vector<std::string>()));
  }
}

TEST_CASE("an agent that answers what it was not asked is refused") {
  AskedHost it;
  it.check.begin();
  CHECK(!it.check.on_answer(AgentMessage::kClock, ClockMessage{1, 1}.encode()).ok());
  CHECK(!it.check.on_answer(AgentMessage::kClock, "x").ok());
  CHECK(!it.check.on_answer(AgentMessage::kStacks, "").ok());
  while (it.asked.back().first == AgentMessage::kAskClock) {
    REQUIRE(it.tell_clock().ok());
  }
  const auto questions = static_cast<std::uint32_t>(it.asked.size());
  CHECK(!it.check.on_answer(AgentMessage::kClock, ClockMessage{questions - 1, 1}.encode()).ok());
  CHECK(it.asked.size() == questions);
}

}  // namespace hvd::launch::host_check_test
