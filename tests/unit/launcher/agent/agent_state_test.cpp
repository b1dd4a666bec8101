// launcher/agent/agent_state: what an agent does next, as scenarios of events; no process, no clock.
#include "launcher/agent/agent_state.h"

#include <signal.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::launch::agent_state_test {
using namespace hvd::launch::agent_action;  // NOLINT(google-build-using-namespace)
using namespace hvd::launch::agent_event;   // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

namespace {

std::string numbers(const auto& list) {
  std::string text;
  for (const auto number : list) {
    text += " " + std::to_string(number);
  }
  return text;
}

std::string alarm(AgentAlarm which) {
  static constexpr const char* kNames[] = {"ladder", "sweep", "launcher"};
  return kNames[static_cast<std::size_t>(which)];
}

// Each action in a word or two.
struct InWords {
  std::string operator()(const BeginRanks&) const { return "begin"; }
  std::string operator()(const ForgetRestarts&) const { return "forget restarts"; }
  std::string operator()(const SignalRanks& a) const { return "signal " + std::to_string(a.signo); }
  std::string operator()(const StopRanks& a) const {
    return "stop " + std::to_string(a.signo) + (a.spared.empty() ? "" : " but" + numbers(a.spared)) + ", " +
           std::to_string(a.grace / 1ms);
  }
  std::string operator()(const ExpectSilence& a) const { return a.is_expected ? "silence" : "no silence"; }
  std::string operator()(const Say& a) const {
    return "say " + std::to_string(static_cast<int>(a.type)) + (a.body.empty() ? "" : ": " + a.body);
  }
  std::string operator()(const Await& a) const {
    return "await " + alarm(a.alarm) + " " + std::to_string(a.delay / 1ms);
  }
  std::string operator()(const Forget& a) const { return "forget " + alarm(a.alarm); }
  std::string operator()(const LookForLeft&) const { return "look"; }
  std::string operator()(const SignalLeft& a) const {
    return "end" + numbers(a.pids) + " by " + std::to_string(a.signo);
  }
  std::string operator()(const EndDrains&) const { return "end drains"; }
  std::string operator()(const LetGo&) const { return "let go"; }
  std::string operator()(const TellRanks& a) const { return "tell " + a.why; }
  std::string operator()(const Leave&) const { return "leave"; }
};

using Words = std::vector<std::string>;

const std::string kSayDone = "say " + std::to_string(static_cast<int>(AgentMessage::kDone));
const std::string kSaySuspended = "say " + std::to_string(static_cast<int>(AgentMessage::kSuspended));
const std::string kSayEnding = "say " + std::to_string(static_cast<int>(AgentMessage::kEnding));

struct Agent {
  AgentState::Times times{5s, 0s};
  AgentState state{times};
  hvd::TimePoint now{};

  Words on(const AgentEvent& event) {
    Words words;
    for (const AgentAction& action : state.on(event)) {
      words.push_back(std::visit(InWords(), action));
    }
    return words;
  }
  // Two ranks run.
  void begin(bool may_restart = false) {
    REQUIRE(on(StartAsked{may_restart}) == Words{"begin"});
    REQUIRE(on(RankBegan{0}).empty());
    REQUIRE(on(RankBegan{1}).empty());
  }
  void finish() {
    REQUIRE(on(RankFinished{0, false}).empty());
    REQUIRE(on(RankFinished{1, false}) == Words{"forget ladder", "look"});
  }
};

}  // namespace

TEST_CASE("an agent whose ranks end in order looks for what they left and says Done once") {
  Agent agent;
  agent.begin();
  agent.finish();
  CHECK(agent.on(LeftFound{}) == Words{"forget sweep", kSayDone});
  CHECK(agent.on(LeftFound{}).empty());
  CHECK_FALSE(agent.state.is_leaving());  // the launcher may still have nodes behind this one
}

TEST_CASE("what ranks left behind gets SIGTERM, then SIGKILL as often as is needed") {
  Agent agent;
  agent.begin();
  agent.finish();
  CHECK(agent.on(LeftFound{false, {71, 72}, agent.now}) == Words{"end 71 72 by 15", "await sweep 1000"});
  CHECK(agent.on(AlarmDue{AgentAlarm::kSweep}) == Words{"look"});
  CHECK(agent.on(LeftFound{false, {72}, agent.now + 1s}) == Words{"end 72 by 9", "await sweep 50"});
  CHECK(agent.on(AlarmDue{AgentAlarm::kSweep}) == Words{"look"});
  CHECK(agent.on(LeftFound{true, {}, agent.now + 2s}) == Words{"forget sweep", kSayDone});
  CHECK(agent.on(AlarmDue{AgentAlarm::kSweep}).empty());  // it was under way
}

TEST_CASE("what cannot be killed is named after ten seconds, and left") {
  Agent agent;
  agent.begin();
  agent.finish();
  agent.on(LeftFound{false, {71}, agent.now});
  CHECK(agent.on(LeftFound{false, {71}, agent.now + 1s}).size() == 2);
  CHECK(agent.on(LeftFound{false, {71}, agent.now + 10s}).size() == 2);
  const Words words = agent.on(LeftFound{false, {71}, agent.now + 10s + 1ms});
  REQUIRE(words.size() == 3);
  CHECK(words[0].find("process 71 cannot be killed") != std::string::npos);
  CHECK(words[2] == kSayDone);
}

TEST_CASE("what ranks leave that were told to end has the rest of their grace") {
  Agent agent;
  agent.begin();
  agent.on(StopAsked{SIGTERM, 10s});
  agent.finish();
  const hvd::TimePoint end = agent.now + 10s;
  CHECK(agent.on(LeftFound{false, {71}, agent.now, end}) == Words{"end 71 by 15", "await sweep 10000"});
  CHECK(agent.on(AlarmDue{AgentAlarm::kSweep}) == Words{"look"});
  CHECK(agent.on(LeftFound{false, {71}, end, end}) == Words{"end 71 by 9", "await sweep 50"});
  CHECK(agent.on(LeftFound{false, {71}, end + 9s, end}) == Words{"end 71 by 9", "await sweep 50"});
  CHECK(agent.on(LeftFound{false, {71}, end + 9s + 1ms, end}).size() == 3);  // it cannot be killed
  Agent late;
  late.begin();
  late.on(StopAsked{SIGTERM, 10s});
  late.finish();
  CHECK(late.on(LeftFound{false, {71}, end - 10ms, end}) == Words{"end 71 by 15", "await sweep 1000"});
}

TEST_CASE("a second stop that is to be at once does not wait for what is left either") {
  Agent agent;
  agent.begin();
  agent.on(StopAsked{SIGINT, 60s});
  agent.finish();
  agent.on(LeftFound{false, {71}, agent.now, agent.now + 60s});
  CHECK(agent.on(StopAsked{SIGKILL, 0s}) ==
        Words{"forget restarts", "stop 9, 0", "no silence", "forget ladder", "look"});
  CHECK(agent.on(LeftFound{false, {71}, agent.now + 2s, agent.now + 2s}) == Words{"end 71 by 9", "await sweep 50"});
}

TEST_CASE("a launcher that is gone leaves what is left no more time than the ranks") {
  Agent agent;
  agent.begin();
  agent.on(StopAsked{SIGTERM, 60s});
  agent.finish();
  agent.on(LeftFound{false, {71}, agent.now, agent.now + 60s});
  CHECK(agent.on(LauncherGone{"hvdrun is gone"}).back() == "await ladder 5000");
  CHECK(agent.on(AlarmDue{AgentAlarm::kLadder}).back() == "look");
  CHECK(agent.on(LeftFound{false, {71}, agent.now + 5s, agent.now + 5s}).front() == "end 71 by 9");
}

TEST_CASE("when ranks have ended that were told to, what they left is looked for although it holds their pipes") {
  Agent agent;
  agent.begin();
  agent.on(StopAsked{SIGTERM, 10s});
  CHECK(agent.on(RankExited{0}).empty());
  CHECK_FALSE(agent.state.runs(0));
  CHECK(agent.state.awaits(0));
  CHECK(agent.on(RankFinished{1, true}) == Words{"forget ladder", "look"});
  CHECK(agent.on(LeftFound{false, {71}, agent.now, agent.now + 10s}) == Words{"end 71 by 15", "await sweep 10000"});
  SUBCASE("its pipes end before it does") {
    CHECK(agent.on(RankFinished{0, true}).empty());
    CHECK(agent.on(LeftFound{}) == Words{"forget sweep", kSayDone});
  }
  SUBCASE("what stands in the pipes is still awaited when it has ended") {
    CHECK(agent.on(LeftFound{}) == Words{"forget sweep", "end drains"});
    CHECK(agent.on(LeftFound{}).empty());
    CHECK(agent.on(RankFinished{0, true}) == Words{"forget sweep", kSayDone});
  }
}

TEST_CASE("the ranks are started once, and not after a stop that overtook the start") {
  Agent agent;
  agent.begin();
  CHECK(agent.on(StartAsked{}).empty());
  Agent stopped;
  CHECK(stopped.on(StopAsked{SIGTERM, 10s}) ==
        Words{"forget restarts", "stop 15, 10000", "no silence", "await ladder 10000", "forget ladder", "look"});
  CHECK(stopped.on(StartAsked{}).empty());
  CHECK_FALSE(stopped.state.may_start_again());
  CHECK_FALSE(stopped.state.is_worth_waiting());
}

TEST_CASE("a stop gives the ranks their grace, spares those that fail, and kills all of them in the end") {
  Agent agent;
  agent.begin();
  CHECK(agent.on(StopAsked{SIGINT, 7s, {1}}) ==
        Words{"forget restarts", "stop 2 but 1, 7000", "no silence", "await ladder 7000"});
  CHECK(agent.state.is_stopping());
  CHECK(agent.on(RankFinished{0, true}).empty());
  CHECK(agent.on(AlarmDue{AgentAlarm::kLadder}) ==
        Words{"forget restarts", "stop 9, 0", "no silence", "forget ladder"});
  CHECK(agent.on(RankFinished{1, true}) == Words{"forget ladder", "look"});
}

TEST_CASE("a second stop takes the place of the first one's grace, and SIGKILL spares nobody") {
  Agent agent;
  agent.begin();
  agent.on(StopAsked{SIGTERM, 10s, {1}});
  CHECK(agent.on(StopAsked{SIGTERM, 3s}).back() == "await ladder 3000");
  CHECK(agent.on(StopAsked{SIGKILL, 0s, {1}}) == Words{"forget restarts", "stop 9, 0", "no silence", "forget ladder"});
}

TEST_CASE("an agent whose ranks were never started is done at the first stop") {
  Agent agent;
  agent.on(StopAsked{SIGTERM, 10s});
  CHECK(agent.on(LeftFound{}) == Words{"forget sweep", kSayDone});
}

TEST_CASE("a rank that failed keeps its node from being over as long as it may be started again") {
  Agent agent;
  agent.begin(true);
  CHECK(agent.on(RankFinished{0, true}).empty());
  CHECK(agent.on(RankFinished{1, false}).empty());
  CHECK(agent.state.may_start_again());
  CHECK(agent.on(RankBegan{0}).empty());
  CHECK(agent.state.runs(0));
  CHECK(agent.on(RankFinished{0, false}) == Words{"forget ladder", "look"});
}

TEST_CASE("a rank that failed and waits for its restart does not keep a job from being stopped") {
  Agent agent;
  agent.begin(true);
  agent.on(RankFinished{0, true});
  agent.on(RankFinished{1, true});
  const Words words = agent.on(StopAsked{SIGTERM, 10s});
  CHECK(words.front() == "forget restarts");
  CHECK(words.back() == "look");
  CHECK_FALSE(agent.state.may_start_again());
}

TEST_CASE("without restarts a rank that failed is as over as one that ended in order") {
  Agent agent;
  agent.begin();
  CHECK(agent.on(RankFinished{0, true}).empty());
  CHECK(agent.on(RankFinished{1, true}) == Words{"forget ladder", "look"});
}

TEST_CASE("ranks are suspended and go on, and each time the launcher's silence is what it said") {
  Agent agent;
  agent.begin();
  CHECK(agent.on(SuspendAsked{}) == Words{"silence", "signal " + std::to_string(SIGSTOP), kSaySuspended});
  CHECK(agent.on(ContinueAsked{}) == Words{"no silence", "signal " + std::to_string(SIGCONT)});
  CHECK(agent.on(ContinueAsked{}) == Words{"no silence"});
}

TEST_CASE("ranks that are suspended go on to see that they are stopped") {
  Agent agent;
  agent.begin();
  agent.on(SuspendAsked{});
  CHECK(agent.on(StopAsked{SIGTERM, 10s}) == Words{"forget restarts", "stop 15, 10000", "no silence",
                                                   "signal " + std::to_string(SIGCONT), "await ladder 10000"});
}

TEST_CASE("ranks that are being stopped are not suspended, but the launcher has its answer") {
  Agent agent;
  agent.begin();
  agent.on(StopAsked{SIGTERM, 10s});
  CHECK(agent.on(SuspendAsked{}) == Words{"silence", kSaySuspended});
  CHECK(agent.on(ContinueAsked{}) == Words{"no silence"});
}

TEST_CASE("when the launcher is gone the ranks are told why, stopped, and the agent leaves") {
  Agent agent;
  agent.begin();
  CHECK(agent.state.is_worth_waiting());
  CHECK(agent.on(LauncherGone{"hvdrun is gone"}) ==
        Words{"let go", "tell hvdrun is gone", "forget restarts", "stop 15, 5000", "no silence", "await ladder 5000"});
  CHECK_FALSE(agent.state.is_worth_waiting());
  CHECK(agent.on(LauncherGone{"twice"}).empty());
  agent.on(AlarmDue{AgentAlarm::kLadder});
  agent.finish();
  CHECK(agent.on(LeftFound{}) == Words{"forget sweep", kSayDone, "leave"});
  CHECK(agent.state.is_leaving());
}

TEST_CASE("an agent that is done leaves as soon as its launcher is gone") {
  Agent agent;
  agent.begin();
  agent.finish();
  agent.on(LeftFound{});
  CHECK(agent.on(LauncherGone{"good-bye"}) == Words{"let go", "leave"});
}

TEST_CASE("a launcher that goes while the agent sweeps is no reason to leave before that is done") {
  Agent agent;
  agent.begin();
  agent.finish();
  agent.on(LeftFound{false, {71}, agent.now});
  const Words words = agent.on(LauncherGone{"hvdrun is gone"});
  CHECK(std::find(words.begin(), words.end(), "leave") == words.end());
  CHECK(agent.on(LeftFound{}).back() == "leave");
}

TEST_CASE("an agent that is told to end says so before its ranks end, and waits for the launcher where it has time") {
  Agent patient{{5s, 3s}};
  patient.begin();
  CHECK(patient.on(EndAsked{"it got SIGTERM"}) == Words{kSayEnding + ": it got SIGTERM", "await launcher 3000"});
  CHECK(patient.on(EndAsked{"it got SIGINT"}).empty());
  const Words words = patient.on(AlarmDue{AgentAlarm::kLauncher});
  CHECK(words[1] == "tell it got SIGTERM");
  Agent other;
  other.begin();
  CHECK(other.on(EndAsked{"it got SIGTERM"}) == Words{kSayEnding + ": it got SIGTERM", "let go", "tell it got SIGTERM",
                                                      "forget restarts", "stop 15, 5000", "no silence",
                                                      "await ladder 5000"});
  CHECK(other.on(EndAsked{"again"}).empty());
}

TEST_CASE("an agent that has joined a job asks to leave at a signal, and ends its ranks at a second one") {
  const std::string leaving = "say " + std::to_string(static_cast<int>(AgentMessage::kLeaving)) + ": it got SIGTERM";
  const std::string ending = "say " + std::to_string(static_cast<int>(AgentMessage::kEnding)) + ": it got SIGTERM";
  const hvd::TimePoint began{};
  Agent agent;
  agent.begin(true);
  CHECK(agent.on(LeaveAsked{"it got SIGTERM", began}) == Words{leaving});
  CHECK(agent.on(LeaveAsked{"it got SIGTERM", began + 100ms}).empty());  // the same signal, by another way
  CHECK(agent.on(LeaveAsked{"it got SIGTERM", began + 1s}).front() == ending);
  Agent idle;
  CHECK(idle.on(LeaveAsked{"it got SIGTERM", began}).front() == ending);  // nothing runs that could be lost
  Agent needed;
  needed.begin();
  CHECK(needed.on(LeaveAsked{"it got SIGTERM", began}).front() == ending);  // the others cannot do without its ranks
}

TEST_CASE("a launcher that has stopped the ranks within its time is not overruled by what ended the agent") {
  Agent agent{{5s, 3s}};
  agent.begin();
  agent.on(EndAsked{"it got SIGTERM"});
  agent.on(StopAsked{SIGTERM, 10s});
  agent.finish();
  CHECK(agent.on(LeftFound{}) == Words{"forget sweep", kSayDone});
  CHECK(agent.on(AlarmDue{AgentAlarm::kLauncher}) == Words{"let go", "leave"});
}

TEST_CASE("ranks that a launcher stops have its grace, however long, and their output is taken until then") {
  Agent agent{{5s, 3s}};
  agent.begin();
  agent.on(EndAsked{"it got SIGTERM"});
  agent.on(StopAsked{SIGTERM, 60s});
  for (int i = 0; i < 3; ++i) {
    CHECK(agent.on(AlarmDue{AgentAlarm::kLauncher}) == Words{"await launcher 3000"});
  }
  agent.finish();
  CHECK(agent.on(LeftFound{}) == Words{"forget sweep", kSayDone});
  CHECK(agent.on(AlarmDue{AgentAlarm::kLauncher}) == Words{"let go", "leave"});
}

TEST_CASE("an answer about what is left that nobody waits for changes nothing") {
  Agent agent;
  agent.begin();
  CHECK(agent.on(LeftFound{}).empty());
  CHECK(agent.on(AlarmDue{AgentAlarm::kSweep}).empty());
  agent.finish();
}

}  // namespace hvd::launch::agent_state_test
