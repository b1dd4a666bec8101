// launcher/agent: the agent's socket for its ranks, with calls of libhvd's own client.
#include "launcher/agent/rank_hub.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/store_client.h"
#include "runtime/rendezvous/store_wire.h"

namespace hvd::launch::rank_hub_test {
namespace {

class Words final : public Log {
 public:
  void write(LogLevel, std::string_view message) override { said += std::string(message) + "\n"; }
  std::string said;
};

struct Node {
  Node() {
    std::string name = "/tmp/hvd-hub-XXXXXX";
    folder = ::mkdtemp(name.data()) != nullptr ? name : "";
    RankHub::Sink sink;
    sink.on_joined = [this](int rank, std::uint32_t generation, bool is_waiting) {
      heard.push_back("rank " + std::to_string(rank) + (is_waiting ? " waits" : " joined") + " in generation " +
                      std::to_string(generation));
    };
    sink.on_exchange = [this](int rank, std::uint32_t generation, const std::string& key, const std::string&) {
      heard.push_back("rank " + std::to_string(rank) + " posts " + key + " in generation " +
                      std::to_string(generation));
    };
    sink.on_failure = [this](int rank, std::uint32_t, const FailureNews& news) {
      heard.push_back("rank " + std::to_string(rank) + ": " + news.what);
    };
    hub = RankHub::listen(*loop, path(), sink, log).value();
    hub->admit({"token", {}, 4});
  }
  ~Node() {
    hub.reset();
    std::filesystem::remove_all(folder);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] std::string path() const { return folder + "/agent"; }
  // As a process of a rank would; its connection is closed again when this returns.
  [[nodiscard]] bool tell(int rank, int by, const std::string& what, const std::string& token = "token") const {
    const FailureNews news{FailureNews::Kind::kEnds, by, 1, what};
    return StoreClient::tell_once(path(), token, rank, news, Deadline::after(std::chrono::seconds(300))).ok();
  }

  SteadyClock clock;
  Words log;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::string folder;
  std::vector<std::string> heard;
  std::unique_ptr<RankHub> hub;
};

// Rank is a rank's connection to the agent's socket, of which the test sees every frame.
class Rank {
 public:
  Rank(Node& node, int rank)
      : node_(node), fd_(connect_unix(node.path(), soon()).value()), decoder_(store_wire::kSpec) {
    ByteWriter hello;
    hello.text("token").i32(rank);
    say(store_wire::kHello, hello.str());
  }
  ~Rank() {
    fd_ = Fd();
    node_.hub->catch_up();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void say(std::uint16_t type, const std::string& body) {
    REQUIRE(send_all(fd_.get(), as_bytes(make_frame(store_wire::kSpec, type, body)), soon()).ok());
    node_.hub->catch_up();
  }
  void post(const std::string& key) {
    ByteWriter body;
    body.text(key).text("value");
    say(store_wire::kExchange, body.str());
  }
  // The next frame that has come.
  Frame next() {
    for (;;) {
      auto frame = decoder_.next();
      REQUIRE(frame.ok());
      if (frame.value()) {
        return *frame.value();
      }
      std::array<std::uint8_t, 1> byte{};
      REQUIRE(recv_exact(fd_.get(), byte, soon()).ok());
      decoder_.feed(byte);
    }
  }
  // The secret that it is welcomed with, in the place that it has.
  JobSecret secret(int place) {
    const Frame frame = next();
    REQUIRE(frame.type == store_wire::kWelcome);
    ByteReader reader(frame.body);
    JobSecret secret{};
    std::memcpy(secret.data(), reader.take(kSecretBytes).data(), secret.size());
    CHECK((reader.u8() == 1 ? GenerationPlace::read(reader).rank : -1) == place);
    return secret;
  }

 private:
  static Deadline soon() { return Deadline::after(std::chrono::seconds(300)); }

  Node& node_;
  Fd fd_;
  FrameDecoder decoder_;
};

// Returns what an acceptor with the secret `accepts` answers to whoever connects with `connects`.
Result<std::optional<LinkClaim>> knock(const JobSecret& accepts, const JobSecret& connects) {
  HandshakeAcceptor acceptor(accepts, 0, make_nonce().value(), std::nullopt);
  HandshakeConnector connector(connects, LinkClaim{LinkRole::kControl, 1, 0}, make_nonce().value(), std::nullopt);
  return acceptor.feed(as_bytes(connector.feed(as_bytes(acceptor.greeting())).value()));
}

}  // namespace

TEST_CASE(
    "a rank that is late in an elastic job's earlier generation is told so, is not heard, and knows no later one") {
  Node node;
  node.hub->set_elastic(true);
  Rank first(node, 1);
  Rank late(node, 2);
  const JobSecret secret = first.secret(-1);
  CHECK(late.secret(-1) == secret);
  CHECK(knock(secret, secret).ok());
  for (const std::uint32_t generation : {1U, 2U}) {
    CAPTURE(generation);
    node.hub->turn_away("rank " + std::to_string(generation + 2) + " was killed");
    node.hub->form_generation(generation, {{1, {0, 2, 0, 2, 0, 1, 0, 1}}, {2, {1, 2, 1, 2, 0, 1, 0, 1}}});
    node.heard.clear();
    late.post("peers");
    CHECK(node.heard.empty());
    Rank again(node, 1);
    const JobSecret newer = again.secret(0);
    CHECK(newer != secret);
    const auto refused = knock(newer, secret);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code() == Code::kAuth);
    CHECK(knock(newer, Rank(node, 2).secret(1)).ok());
  }
  // It is told once, by what has ended its own generation.
  const Frame notice = late.next();
  CHECK(notice.type == store_wire::kNotice);
  CHECK(ByteReader(notice.body).text() == "rank 3 was killed");
  Rank(node, 2).post("peers");
  CHECK(node.log.said.find("posted a value before it was welcome") != std::string::npos);  // its place is taken
}

TEST_CASE("what a rank told before it ended is known without another turn of the loop") {
  Node node;
  CHECK(node.tell(2, -1, "ValueError: first"));
  CHECK(node.tell(3, 2, "HorovodInternalError: second"));
  CHECK(node.heard.empty());
  node.hub->catch_up();
  CHECK(node.heard == std::vector<std::string>{"rank 2: ValueError: first", "rank 3: HorovodInternalError: second"});
  node.hub->catch_up();
  CHECK(node.heard.size() == 2);
  CHECK(node.log.said.empty());
}

TEST_CASE("a visitor without the job's token, of no rank, or that speaks of none, is not heard") {
  Node node;
  CHECK(node.tell(2, -1, "x", "another token"));
  CHECK(node.tell(4, -1, "x"));
  CHECK(node.tell(2, 4, "x"));
  node.hub->catch_up();
  CHECK(node.heard.empty());
  CHECK(node.log.said.find("did not show this job's token") != std::string::npos);
  CHECK(node.log.said.find("calls itself rank 4 in a job of 4") != std::string::npos);
  CHECK(node.log.said.find("speaks of rank 4 in a job of 4") != std::string::npos);
}

}  // namespace hvd::launch::rank_hub_test
