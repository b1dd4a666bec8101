// launcher/sessions/node_session and launcher/agent/agent_session: a session whose connections break anywhere.
#include "launcher/sessions/node_session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/agent/agent_session.h"
#include "launcher/sessions/session_inbox.h"
#include "launcher/wire/resend_queue.h"
#include "tests/support/jumping_clock.h"

namespace hvd::launch::node_session_test {
namespace {

constexpr auto kNever = std::size_t{1} << 60U;

class QuietLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

// A wire between two sockets that breaks after `budget` bytes, wherever that is in a frame; what is on it then is lost.
class Wire {
 public:
  Wire(EventLoop& loop, std::size_t budget) : loop_(loop), budget_(budget) {
    for (int side = 0; side < 2; ++side) {
      int pair[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
      ends_[side] = Fd(pair[0]);
      inner_[side] = Fd(pair[1]);
      watches_[side] = loop.watch(pair[1], EPOLLIN, [this, side](std::uint32_t) { carry(side); }).value();
    }
  }
  ~Wire() { cut(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void cut() {
    for (int side = 0; side < 2; ++side) {
      loop_.unwatch(watches_[side]);
      inner_[side].reset();
    }
  }
  Fd take_end(int side) { return std::move(ends_[side]); }

 private:
  void carry(int from) {
    char buffer[256];
    const ssize_t got = ::read(inner_[from].get(), buffer, std::min(sizeof buffer, budget_));
    if (got > 0 && ::write(inner_[1 - from].get(), buffer, static_cast<std::size_t>(got)) == got) {
      budget_ -= static_cast<std::size_t>(got);
    } else {
      budget_ = 0;
    }
    if (budget_ == 0) {
      cut();
    }
  }

  EventLoop& loop_;
  std::size_t budget_;
  Fd ends_[2];
  Fd inner_[2];
  WatchId watches_[2] = {0, 0};
};

class WireStream final : public Stream {
 public:
  WireStream(EventLoop& loop, Fd fd, StreamSink& sink) {
    ByteChannel::Handlers handlers;
    handlers.on_bytes = [&sink](Bytes bytes) { sink.on_bytes(bytes); };
    handlers.on_closed = [&sink](const Error&) { sink.on_closed(Error(Code::kLostPeer, "the wire broke")); };
    channel_ = ByteChannel::create(loop, std::move(fd), Fd(), std::move(handlers)).value();
  }
  void write(std::string bytes) override { channel_->write(bytes); }
  void close_input() override { channel_->close_output(); }

 private:
  std::unique_ptr<ByteChannel> channel_;
};

// One node and the launcher, in one loop. Each connection is a wire to a new AgentSession, as on a node.
struct Node final : Transport, SessionSink {
  explicit Node(Duration reconnect = std::chrono::seconds(300), Duration heartbeat = std::chrono::minutes(1))
      : session(*loop, plan(), 1, *this) {
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    welcome.token = "token";
    welcome.size = 1;
    welcome.heartbeat_ms = 60'000;
    welcome.reconnect_ms =
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(reconnect).count());
    session.open(*this);
    REQUIRE(wait([this] { return is_ready; }));
    session.watch_connection(heartbeat, reconnect, welcome.token);
    session.send(AgentMessage::kWelcome, welcome.encode());
    session.send(AgentMessage::kStart);
    REQUIRE(wait([this] { return has_started; }));
  }
  ~Node() override { std::filesystem::remove_all(folder); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  static NodePlan plan() {
    NodePlan plan;
    plan.host.name = "node1";
    plan.ranks.resize(1);
    return plan;
  }

  template <typename Condition>
  bool wait(const Condition& condition) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(300));
    while (!condition()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(deadline).ok());
    }
    return true;
  }

  // ---- the way to the node ----
  std::unique_ptr<Stream> open(const NodeTarget&, StreamSink& sink) override {
    wires.push_back(std::make_unique<Wire>(*loop, next_budget ? next_budget() : kNever));
    const std::size_t number = agents.size();
    AgentSession::Sink theirs;
    theirs.on_frame = [this](const Frame& frame) { return on_agent_frame(frame); };
    theirs.on_relay = [](const Frame&) -> Result<void> { return {}; };
    theirs.on_disconnected = [] {};
    theirs.on_bye = [](const ByeMessage&) {};
    theirs.on_over = [this, number](const std::string& why) { over.push_back(std::to_string(number) + ": " + why); };
    theirs.is_worth_waiting = [this] { return has_started; };
    Fd end = wires.back()->take_end(0);
    Fd out(::dup(end.get()));
    const std::string path = folder + "/resume" + std::to_string(number);
    agents.push_back(
        AgentSession::create(*loop, {std::move(end), std::move(out), nullptr}, path, std::move(theirs), log).value());
    ReadyMessage ready;
    ready.resume_path = path;
    agents.back()->send(AgentMessage::kReady, ready.encode());
    return std::make_unique<WireStream>(*loop, wires.back()->take_end(1), sink);
  }
  Result<void> on_agent_frame(const Frame& frame) {
    if (static_cast<AgentMessage>(frame.type) == AgentMessage::kWelcome) {
      agents[0]->on_welcome(WelcomeMessage::decode(frame.body).value());
    } else if (static_cast<AgentMessage>(frame.type) == AgentMessage::kStart) {
      has_started = true;
    } else {
      at_agent.push_back(frame.body);
    }
    return {};
  }

  // ---- what the launcher hears ----
  void on_ready(int, const ReadyMessage&) override { is_ready = true; }
  void on_progress(int, const std::string&) override {}
  void on_notice(int, const std::string& what) override { notices.push_back(what); }
  void on_away(int, const Error& why, Duration) override { notices.push_back("away: " + why.message()); }
  void on_back(int, Duration) override { notices.emplace_back("back"); }
  void on_joined(const JoinedMessage&) override {}
  void on_started(int, int) override {}
  void on_start_failed(const StartFailedMessage&) override {}
  void on_output(int, const OutputMessage&) override {}
  void on_output_end(int, StreamId) override {}
  void on_exited(const ExitedMessage&) override {}
  void on_exchange(const ExchangeMessage&) override {}
  void on_problem(int, const std::string& text) override { at_launcher.push_back(text); }
  void on_ending(int, const std::string&) override {}
  Result<void> on_relay(int, const Frame&) override { return {}; }
  void on_done(int) override { is_done = true; }
  void on_lost(int, const Error& why) override { lost = why; }

  test::JumpingClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  QuietLog log;
  std::string folder = "/tmp/hvd-test-XXXXXX";
  WelcomeMessage welcome;
  std::function<std::size_t()> next_budget;
  std::vector<std::unique_ptr<Wire>> wires;
  std::vector<std::unique_ptr<AgentSession>> agents;
  std::vector<std::string> over;
  std::vector<std::string> at_agent;
  std::vector<std::string> at_launcher;
  std::vector<std::string> notices;
  std::optional<Error> lost;
  bool is_ready = false;
  bool has_started = false;
  bool is_done = false;
  NodeSession session;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a resend queue holds what is not acknowledged, and believes no impossible count") {
  ResendQueue queue;
  queue.keep(std::make_shared<const std::string>("a"));
  queue.keep(std::make_shared<const std::string>("bc"));
  queue.keep(std::make_shared<const std::string>("d"));
  CHECK(queue.bytes() == 4);
  CHECK(queue.acknowledge(1).ok());
  CHECK(queue.unacknowledged() == "bcd");
  CHECK_FALSE(queue.acknowledge(0).ok());
  CHECK_FALSE(queue.acknowledge(4).ok());
  CHECK(queue.acknowledge(3).ok());
  CHECK(queue.unacknowledged().empty());
  CHECK(queue.bytes() == 0);
}

TEST_CASE("whatever is said while connections break anywhere arrives once and in order") {
  std::mt19937 random(7);
  Node node;
  // Long enough for the resumption itself, most times; it may break too.
  node.next_budget = [&random] { return 50 + random() % 4000; };
  node.wires[0]->cut();
  std::vector<std::string> from_agent;
  std::vector<std::string> from_launcher;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = std::to_string(i) + std::string(random() % 200, 'x');
    if (random() % 2 == 0) {
      from_agent.push_back(text);
      node.agents[0]->send(AgentMessage::kProblem, text);
    } else {
      from_launcher.push_back(text);
      node.session.send(AgentMessage::kNotice, text);
    }
    if (i % 8 == 0) {
      REQUIRE(node.loop->turn(Deadline::after(std::chrono::milliseconds(1))).ok());
    }
  }
  node.next_budget = nullptr;
  node.wires.back()->cut();
  CHECK(node.wait(
      [&] { return node.at_launcher.size() >= from_agent.size() && node.at_agent.size() >= from_launcher.size(); }));
  CHECK(node.at_launcher == from_agent);
  CHECK(node.at_agent == from_launcher);
  CHECK(node.wires.size() > 10);
  CHECK_FALSE(node.lost.has_value());
}

TEST_CASE("a node that is reached again says so once, and ends with a good-bye") {
  Node node;
  node.wires[0]->cut();
  CHECK(node.wait([&] { return node.notices.size() == 2; }));
  CHECK(has(node.notices[0], "away: the wire broke"));
  CHECK(node.notices[1] == "back");
  node.agents[0]->send(AgentMessage::kDone);
  CHECK(node.wait([&] { return node.is_done; }));
  node.session.close_input();
  CHECK(node.wait([&] { return !node.over.empty(); }));
  CHECK(node.over[0] == "0: the launcher has ended the session");
  // The agent that brought the connection ends with it.
  node.agents[0].reset();
  CHECK(node.wait([&] { return node.over.size() == 2; }));
  CHECK(node.over[1] == "1: the connection that was handed over has ended");
}

TEST_CASE("an agent that is gone is not waited for") {
  Node node;
  node.agents[0].reset();
  CHECK(node.wait([&] { return node.lost.has_value(); }));
  CHECK(has(node.lost->message(), "the wire broke; its agent does not run any more"));
}

TEST_CASE("an agent that speaks of a rank of another node, or not to a launcher, is not believed") {
  Node sink;
  NodePlan plan;
  plan.ranks.resize(2);
  plan.ranks[0].rank = 2;
  plan.ranks[1].rank = 3;
  const SessionInbox inbox(plan, 4, sink);
  const auto deliver = [&inbox](AgentMessage type, const std::string& body) {
    return inbox.deliver({static_cast<std::uint16_t>(type), body});
  };
  const auto failed = [&deliver](int rank) {
    return deliver(AgentMessage::kStartFailed, StartFailedMessage{rank, Error(Code::kInternal, "no")}.encode());
  };
  CHECK(failed(2).ok());
  CHECK(failed(3).ok());
  CHECK_FALSE(failed(4).ok());
  CHECK(failed(1).error().message() == "the agent speaks of rank 1, which is not on this node");
  CHECK_FALSE(deliver(AgentMessage::kStartFailed, "").ok());
  CHECK_FALSE(deliver(AgentMessage::kWelcome, "").ok());
  // A generation of a job that has grown has more members than the job had ranks when this node came to it.
  FailingMessage failing;
  failing.rank = 2;
  failing.news.by = 5;
  CHECK(deliver(AgentMessage::kFailing, failing.encode()).ok());
}

TEST_CASE("a connection of another session is refused") {
  Node node;
  Node other;
  // The other launcher's word for the first node's agent.
  Wire wire(*node.loop, kNever);
  AgentSession::Sink sink;
  sink.on_frame = [](const Frame&) -> Result<void> { return {}; };
  sink.on_relay = [](const Frame&) -> Result<void> { return {}; };
  sink.on_disconnected = [] {};
  sink.on_bye = [](const ByeMessage&) {};
  bool is_over = false;
  sink.on_over = [&](const std::string&) { is_over = true; };
  sink.is_worth_waiting = [] { return false; };
  Fd end = wire.take_end(0);
  Fd out(::dup(end.get()));
  const auto helper = AgentSession::create(*node.loop, {std::move(end), std::move(out), nullptr},
                                           node.folder + "/helper", std::move(sink), node.log);
  REQUIRE(helper.ok());
  const Fd launcher = wire.take_end(1);
  const std::string frame =
      agent_frame(AgentMessage::kResume, ResumeMessage{node.folder + "/resume0", "wrong", 0}.encode());
  REQUIRE(::write(launcher.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  CHECK(node.wait([&] { return is_over; }));
  node.session.send(AgentMessage::kNotice, "still here");
  CHECK(node.wait([&] { return node.at_agent == std::vector<std::string>{"still here"}; }));
}

TEST_CASE("the time for which an agent and its launcher were stopped is no silence of the other") {
  Node node;
  node.clock.jumped = std::chrono::hours(1);  // of silence they bear 3 heartbeats of a minute, and 300 s
  for (int i = 0; i < 10; ++i) {
    REQUIRE(node.loop->turn(Deadline::after(std::chrono::milliseconds(0))).ok());
  }
  CHECK(node.over.empty());
  CHECK_FALSE(node.lost.has_value());
  node.session.send(AgentMessage::kNotice, "still here");
  CHECK(node.wait([&] { return node.at_agent == std::vector<std::string>{"still here"}; }));
  CHECK(node.notices.empty());
}

TEST_CASE("a launcher that has said so may be silent, until it speaks again") {
  Node node(std::chrono::seconds(300), std::chrono::hours(1000));
  const auto be_silent = [&] {
    // In steps, as the agent's clock goes on while its launcher's stands still.
    for (int step = 0; step < 12; ++step) {
      node.clock.jumped += std::chrono::seconds(59);
      REQUIRE(node.loop->turn(Deadline::after(std::chrono::milliseconds(0))).ok());
    }
  };
  node.agents[0]->expect_silence(true);
  be_silent();
  CHECK(node.over.empty());
  node.agents[0]->expect_silence(false);
  be_silent();
  CHECK(node.over.size() == 1);
}

TEST_CASE("a launcher that does not come back is given up") {
  Node node(std::chrono::milliseconds(200));
  node.next_budget = [] { return std::size_t{1}; };  // no new connection lives
  node.wires[0]->cut();
  const auto gave_up = [](const std::string& text) { return text.starts_with("0: the launcher was silent for "); };
  CHECK(node.wait([&] { return node.lost.has_value() && std::any_of(node.over.begin(), node.over.end(), gave_up); }));
  CHECK(has(node.lost->message(), "the wire broke; not reached again within "));
}

TEST_CASE("without a reconnect timeout a broken connection is the end") {
  Node node(Duration::zero());
  node.wires[0]->cut();
  CHECK(node.wait([&] { return node.lost.has_value() && !node.over.empty(); }));
  CHECK(node.lost->message() == "the wire broke");
  CHECK(node.over[0] == "0: the launcher is gone");
}

}  // namespace hvd::launch::node_session_test
