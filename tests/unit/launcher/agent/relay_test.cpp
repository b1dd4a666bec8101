// The tree by which many nodes are reached: who relays to whom (launcher/run), and commands that one node runs for the
// launcher (launcher/agent/relay_hub, launcher/transport/relay), joined here without a connection in between.
#include "launcher/command/relay.h"

#include <signal.h>
#include <sys/wait.h>

#include <deque>
#include <fstream>
#include <map>
#include <sstream>

#include <doctest/doctest.h>

#include "launcher/agent/relay_hub.h"
#include "launcher/job/host_list.h"
#include "launcher/sessions/relay_tree.h"

namespace hvd::launch::relay_test {
namespace {

// A launcher's end and an agent's end. Frames wait until they are delivered, each way in order.
struct Pair {
  Pair() { ::signal(SIGPIPE, SIG_IGN); }
  ~Pair() {
    hub.end_all();
    CHECK(wait([this] { return hub.is_idle(); }));
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // What a process was told of by its handlers.
  struct Told {
    std::string output;
    std::string errors;
    bool is_over = false;
    std::optional<ExitStatus> status;
    std::string how;
  };

  std::unique_ptr<ByteProcess> start(const std::vector<std::string>& argv, Told& told) {
    ByteProcess::Handlers handlers;
    handlers.on_output = [&told](Bytes bytes) { told.output += as_text(bytes); };
    handlers.on_errors = [&told](std::string_view text) { told.errors += text; };
    handlers.on_taken = [] {};
    handlers.on_over = [&told](const std::optional<ExitStatus>& status, const std::string& how) {
      CHECK(!told.is_over);
      told.is_over = true;
      told.status = status;
      told.how = how;
    };
    auto started = relay.start(argv, std::move(handlers));
    REQUIRE(started.ok());
    return std::move(started).value();
  }

  void deliver() {
    while (!to_agent.empty() || (!to_launcher.empty() && is_listening)) {
      const bool down = !to_agent.empty();
      std::deque<Frame>& queue = down ? to_agent : to_launcher;
      const Frame frame = std::move(queue.front());
      queue.pop_front();
      const auto taken = down ? hub.on_frame(frame) : relay.on_frame(frame);
      CHECK_MESSAGE(taken.ok(), taken.error().message());
    }
  }

  template <typename Condition>
  bool wait(const Condition& condition) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(300));
    for (deliver(); !condition(); deliver()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(20))).ok());
      int status = 0;
      for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        CHECK(hub.owns(pid));
        CHECK(hub.on_exited(pid, ExitStatus::from_wait(status)));
      }
    }
    return true;
  }

  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::deque<Frame> to_agent;
  std::deque<Frame> to_launcher;
  bool is_listening = true;
  int idle = 0;
  Relay relay{*loop, "node1", [this](AgentMessage type, std::string_view body) {
                to_agent.push_back({static_cast<std::uint16_t>(type), std::string(body)});
              }};
  RelayHub hub{*loop,
               {"PATH=/usr/bin:/bin"},
               {[this](AgentMessage type, std::string_view body) {
                  to_launcher.push_back({static_cast<std::uint16_t>(type), std::string(body)});
                },
                [this] { ++idle; }}};
};

}  // namespace

TEST_CASE("nobody has more nodes behind it than the fanout, and a relay stands before those behind it") {
  for (const int fanout : {1, 2, 3, 7, 64, 1000}) {
    for (const int count : {0, 1, 2, 6, 7, 63, 64, 65, 128, 1000, 4161}) {
      CAPTURE(fanout);
      CAPTURE(count);
      const std::vector<int> relays = relays_in_turn(count, fanout);
      REQUIRE(relays.size() == static_cast<std::size_t>(count));
      std::map<int, int> behind;
      for (int node = 0; node < count; ++node) {
        const int relay = relays[static_cast<std::size_t>(node)];
        CHECK(relay >= -1);
        CHECK(relay < node);
        CHECK((relay == -1) == (node < fanout));
        ++behind[relay];
      }
      for (const auto& [relay, nodes] : behind) {
        CHECK(nodes <= fanout);
      }
    }
  }
  CHECK(relays_in_turn(9, 2) == std::vector<int>{-1, -1, 0, 1, 0, 1, 2, 3, 4});
  CHECK(relays_in_turn(3, 0) == std::vector<int>{-1, -1, -1});
}

TEST_CASE("this machine and the nodes of an engine are in no tree") {
  JobSpec spec;
  spec.fanout = 1;
  const auto placed = [](const char* hosts) { return place(parse_host_list(hosts).value(), 0).value(); };
  CHECK(relays_of(spec, placed("a:1,localhost:1,b:1,c:1")) == std::vector<int>{-1, -1, 0, 2});
  spec.launcher = LauncherKind::kMpi;
  CHECK(relays_of(spec, placed("a:1,b:1")) == std::vector<int>{-1, -1});
}

TEST_CASE("a relayed command has its streams, and its end is told once all of them were") {
  Pair pair;
  pair.relay.change(Relay::State::kUp);
  Pair::Told told;
  const auto process = pair.start({"sh", "-c", "cat; echo so >&2; exit 7"}, told);
  process->write("one ");
  process->write("two");
  process->close_input();
  REQUIRE(pair.wait([&] { return told.is_over; }));
  CHECK(told.output == "one two");
  CHECK(told.errors == "so\n");
  CHECK(told.status->shell_code() == 7);
  CHECK(told.how == "exited with code 7");
  CHECK(pair.wait([&] { return pair.idle == 1 && pair.hub.is_idle(); }));
}

TEST_CASE("the relaying agent sends its own executable") {
  Pair pair;
  pair.relay.set_processor("x86_64");
  pair.relay.change(Relay::State::kUp);
  Pair::Told told;
  const auto process = pair.start({"sh", "-c", "echo; exec sha256sum"}, told);
  process->push({"", "", "x86_64"});
  process->close_input();
  REQUIRE(pair.wait([&] { return told.is_over; }));
  Pair::Told own;
  const auto check = pair.start(
      {"sh", "-c", "echo; exec sha256sum <\"$1\"", "x", "/proc/" + std::to_string(::getpid()) + "/exe"}, own);
  REQUIRE(pair.wait([&] { return own.is_over; }));
  CHECK(told.output == own.output);
  CHECK(told.output.size() > 64);
}

TEST_CASE("for a node with another processor than the relay's, the launcher sends the executable") {
  Pair pair;
  pair.relay.set_processor("aarch64");
  pair.relay.change(Relay::State::kUp);
  Pair::Told told;
  const std::string bytes(200'001, 'x');  // several messages
  const auto process = pair.start({"sh", "-c", "exec wc -c"}, told);
  process->push({bytes, "", "x86_64"});
  process->close_input();
  REQUIRE(pair.wait([&] { return told.is_over; }));
  CHECK(told.output == "200001\n");
}

TEST_CASE("a command that nobody listens to is not read for more than its credit") {
  Pair pair;
  pair.relay.change(Relay::State::kUp);
  Pair::Told told;
  const auto process = pair.start({"sh", "-c", "head -c 3000000 /dev/zero; echo end >&2"}, told);
  pair.deliver();
  pair.is_listening = false;
  const auto waiting = [&] {
    std::size_t bytes = 0;
    for (const Frame& frame : pair.to_launcher) {
      bytes += frame.body.size() - sizeof(std::uint32_t);
    }
    return bytes;
  };
  REQUIRE(pair.wait([&] { return waiting() >= kRelayWindow; }));
  for (int turn = 0; turn < 20; ++turn) {
    REQUIRE(pair.loop->turn(Deadline::after(std::chrono::milliseconds(5))).ok());
  }
  CHECK(waiting() == kRelayWindow);
  pair.is_listening = true;
  REQUIRE(pair.wait([&] { return told.is_over; }));
  CHECK(told.output.size() == 3'000'000);
  CHECK(told.errors == "end\n");
}

TEST_CASE("a command that cannot be started says why, and one that is not needed any more ends") {
  Pair pair;
  pair.relay.change(Relay::State::kUp);
  Pair::Told none;
  const auto missing = pair.start({"no-such-program"}, none);
  REQUIRE(pair.wait([&] { return none.is_over; }));
  CHECK(!none.status);
  CHECK(none.how.find("did not start: no such program: 'no-such-program'") == 0);

  Pair::Told told;
  auto process = pair.start({"sh", "-c", "trap '' TERM; echo up; sleep 1000"}, told);
  REQUIRE(pair.wait([&] { return told.output == "up\n"; }));
  process->set_patience(std::chrono::milliseconds(1));
  process.reset();
  REQUIRE(pair.wait([&] { return pair.hub.is_idle(); }));
  CHECK(!told.is_over);
}

TEST_CASE("when the relay's connection is gone, so is all that it carries, at both ends") {
  Pair pair;
  pair.relay.change(Relay::State::kUp);
  Pair::Told told;
  const auto process = pair.start({"sleep", "1000"}, told);
  pair.deliver();
  CHECK(!pair.hub.is_idle());
  Relay::State seen = Relay::State::kComing;
  pair.relay.watch([&] { seen = pair.relay.state(); });
  pair.relay.change(Relay::State::kAway);
  pair.hub.end_all();
  REQUIRE(pair.wait([&] { return told.is_over && pair.hub.is_idle(); }));
  CHECK(told.how == "broke with the connection to node1, which relays it");
  CHECK(seen == Relay::State::kAway);
  CHECK(!pair.relay.start({"true"}, {}).ok());
  process->write("late");  // goes nowhere
  CHECK(pair.to_agent.empty());
}

TEST_CASE("numbers are used once, late words are ignored, and others are refused") {
  Pair pair;
  const auto frame = [](AgentMessage type, const std::string& body) {
    return Frame{static_cast<std::uint16_t>(type), body};
  };
  CHECK(pair.hub.on_frame(frame(AgentMessage::kRelayStart, RelayStartMessage{5, {"true"}}.encode())).ok());
  CHECK(!pair.hub.on_frame(frame(AgentMessage::kRelayStart, RelayStartMessage{5, {"true"}}.encode())).ok());
  CHECK(pair.hub.on_frame(frame(AgentMessage::kRelayInput, relay_body(99, "x"))).ok());
  CHECK(!pair.hub.on_frame(frame(AgentMessage::kRelayOutput, relay_body(5, "x"))).ok());
  CHECK(!pair.hub.on_frame(frame(AgentMessage::kRelayCredit, relay_body(5, "xyz"))).ok());
  CHECK(!pair.hub.on_frame(frame(AgentMessage::kRelayInput, "x")).ok());
  CHECK(pair.relay.on_frame(frame(AgentMessage::kRelayOutput, relay_body(99, "x"))).ok());
  CHECK(!pair.relay.on_frame(frame(AgentMessage::kRelayInput, relay_body(99, "x"))).ok());
  CHECK(!pair.relay.on_frame(frame(AgentMessage::kRelayOver, "x")).ok());
}

}  // namespace hvd::launch::relay_test
