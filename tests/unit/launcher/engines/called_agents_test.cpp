// launcher/run/called_agents, driver_pipe and engine_call's order: a job whose places are known when its agents call.
#include "launcher/engines/called_agents.h"

#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include <doctest/doctest.h>

#include "launcher/engines/driver_pipe.h"
#include "launcher/wire/engine_call.h"

namespace hvd::launch::called_agents_test {
namespace {

ReadyMessage ready_on(const std::string& machine, const std::string& host) {
  ReadyMessage ready;
  ready.host_name = host;
  ready.machine = machine;
  return ready;
}

// A transport whose other end is the test.
class FakeCalls final : public Transport {
 public:
  struct Wire final : Stream {
    explicit Wire(FakeCalls& calls, int number) : owner(calls), partition(number) {}
    ~Wire() override { owner.sinks.erase(partition); }
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;
    void write(std::string bytes) override { owner.written[partition] += bytes; }
    void close_input() override { owner.written[partition] += "<end>"; }
    FakeCalls& owner;
    int partition;
  };
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override {
    sinks[target.rank] = &sink;
    return std::make_unique<Wire>(*this, target.rank);
  }
  void call(int partition, const ReadyMessage& ready) {
    Opened opened;
    opened.node_address = "10.0.0." + std::to_string(partition);
    sinks.at(partition)->on_open(opened);
    const std::string frame =
        make_frame(kAgentFrames, static_cast<std::uint16_t>(AgentMessage::kReady), ready.encode());
    sinks.at(partition)->on_bytes(as_bytes(std::string_view(frame).substr(0, 5)));
    sinks.at(partition)->on_bytes(as_bytes(std::string_view(frame).substr(5)));
  }
  std::map<int, StreamSink*> sinks;
  std::map<int, std::string> written;
};

struct Session final : StreamSink {
  void on_open(const Opened& opened) override { address = opened.node_address; }
  void on_progress(const std::string&) override {}
  void on_notice(const std::string&) override {}
  void on_bytes(Bytes more) override { bytes += as_text(more); }
  void on_closed(const Error& why) override { closed = why.message(); }
  std::string address;
  std::string bytes;
  std::string closed;
};

struct Gang {
  explicit Gang(int count)
      : agents(*loop, calls, count,
               {[this](int n) { called = n; }, [this](const Error& why) { lost = why.message(); }}) {}
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  FakeCalls calls;
  int called = 0;
  std::string lost;
  CalledAgents agents;
};

}  // namespace

TEST_CASE("agents of one machine become a node, machines in the order of their lowest partition") {
  const CalledPlacement called =
      place_called({ready_on("m2", "b"), ready_on("m1", "a"), ready_on("m2", "b"), ready_on("m1", "a")});
  REQUIRE(called.placement.nodes.size() == 2);
  CHECK(called.placement.size == 4);
  CHECK(called.placement.nodes[0].host.name == "b");
  CHECK(called.placement.nodes[1].host.name == "a");
  CHECK(called.partition_of_rank == std::vector<int>{0, 2, 1, 3});
  CHECK(called.placement.nodes[1].ranks[1] == RankPlan{3, 1, 1, 2});
}

TEST_CASE("two containers of one name are two nodes") {
  const CalledPlacement called = place_called({ready_on("boot mnt:1", "pod"), ready_on("boot mnt:2", "pod")});
  CHECK(called.placement.nodes.size() == 2);
  CHECK(called.partition_of_rank == std::vector<int>{0, 1});
}

TEST_CASE("a session gets the agent of its rank's partition, and all that came before it was there") {
  Gang gang(2);
  gang.calls.call(1, ready_on("m", "h"));
  CHECK(gang.called == 1);
  CHECK_FALSE(gang.agents.is_complete());
  gang.calls.call(0, ready_on("n", "g"));
  REQUIRE(gang.agents.is_complete());
  CHECK(gang.agents.facts()[1].host_name == "h");

  gang.agents.assign({1, 0});
  Session session;
  auto stream = gang.agents.open(NodeTarget{"h", "", 0, 0}, session);
  CHECK(session.address.empty());  // never from inside open()
  REQUIRE(gang.loop->turn().ok());
  CHECK(session.address == "10.0.0.1");
  const std::size_t greeting = session.bytes.size();
  CHECK(greeting > kFrameHeaderBytes);
  gang.calls.sinks.at(1)->on_bytes(as_bytes("more"));
  CHECK(session.bytes.substr(greeting) == "more");
  stream->write("welcome");
  stream->close_input();
  CHECK(gang.calls.written[1] == "welcome<end>");
  gang.calls.sinks.at(1)->on_closed(Error(Code::kLostPeer, "gone"));
  CHECK(session.closed == "gone");
  stream.reset();
  CHECK(gang.calls.sinks.count(1) == 0);
}

TEST_CASE("an agent that leaves before the job begins, or speaks nonsense, is told once by its partition") {
  Gang gang(2);
  gang.calls.sinks.at(1)->on_closed(Error(Code::kLostPeer, "it has closed the connection"));
  CHECK(gang.lost.find("partition 1") != std::string::npos);
  gang.calls.sinks.at(0)->on_bytes(as_bytes("GET / HTTP/1.1\r\n\r\n"));
  CHECK(gang.lost.find("partition 0") != std::string::npos);
}

TEST_CASE("an agent that goes between its call and its session is told to the session") {
  Gang gang(1);
  gang.calls.call(0, ready_on("m", "h"));
  gang.agents.assign({0});
  gang.calls.sinks.at(0)->on_closed(Error(Code::kLostPeer, "its executor was killed"));
  Session session;
  const auto stream = gang.agents.open(NodeTarget{"h", "", 0, 0}, session);
  REQUIRE(gang.loop->turn().ok());
  CHECK(session.address == "10.0.0.0");
  CHECK(session.closed == "its executor was killed");
}

TEST_CASE("an order names the key, the partition and how many there are, and nothing else passes") {
  const std::string key(128, 'a');
  const auto order = parse_order(key + " 3 4");
  REQUIRE(order.ok());
  CHECK(order.value().seat.rank == 3);
  CHECK(order.value().seat.size == 4);
  CHECK(call_key_text(order.value().key) == key);
  for (const std::string& wrong : {std::string(), key, key + " 3", key + " 4 4", key + " -1 4", key + " 1 4 x",
                                   key + " 1x 4", key.substr(1) + " 1 4", key + " 1 99999999999"}) {
    CHECK_FALSE(parse_order(wrong).ok());
  }
}

TEST_CASE("the driver is told whom to call, and its end or its word ends the job") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  for (const std::string& word :
       {std::string("over no executor is left\nmore"), std::string("nonsense\n"), std::string()}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    Fd driver(ends[1]);
    std::string over;
    const auto pipe =
        DriverPipe::open(*loop, Fd(ends[0]), [&over](const Error& why) { over += why.message(); }).value();
    REQUIRE(pipe->ask_for_calls(CallKey{}, 2, {"-", {"10.0.0.1:7", "10.0.1.1:7"}}).ok());
    char line[512];
    const ssize_t got = ::read(driver.get(), line, sizeof line);
    CHECK(std::string(line, static_cast<std::size_t>(got)) ==
          "call " + std::string(128, '0') + " 2 - 10.0.0.1:7 10.0.1.1:7\n");
    if (!word.empty()) {
      REQUIRE(::write(driver.get(), word.data(), word.size()) == static_cast<ssize_t>(word.size()));
    } else {
      driver.reset();
    }
    REQUIRE(loop->turn().ok());
    CHECK(over == (word.starts_with("over") ? "no executor is left"
                   : word.empty()           ? "the program that started hvdrun is gone"
                                            : "the program that started hvdrun sent a line that means nothing"));
  }
}

}  // namespace hvd::launch::called_agents_test
