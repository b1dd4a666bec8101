// StoreClient against an agent that is played by the test.
#include "runtime/rendezvous/store_client.h"

#include <poll.h>

#include <filesystem>
#include <thread>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/store_wire.h"
#include "tests/support/ending_interrupt.h"

namespace hvd::store_client_test {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(300));
}

// The agent's end of the conversation, blocking.
class FakeAgent {
 public:
  FakeAgent() {
    std::string name = "/tmp/hvd-test-XXXXXX";
    dir_ = ::mkdtemp(name.data()) != nullptr ? name : "";
    listener_ = listen_unix(path()).value();
  }
  ~FakeAgent() { std::filesystem::remove_all(dir_); }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  [[nodiscard]] std::string path() const { return dir_ + "/agent"; }
  void accept() { fd_ = accept_one(listener_.get(), soon()).value(); }
  void hang_up() { fd_.reset(); }

  // The next frame, or one of type 0 at the end of the stream.
  Frame receive() {
    FrameDecoder decoder(store_wire::kSpec);
    for (;;) {
      auto frame = decoder.next();
      if (!frame.ok() || frame.value()) {
        return frame.ok() ? std::move(*frame.value()) : Frame{};
      }
      std::uint8_t byte = 0;  // bytewise: what follows stays in the socket
      if (!recv_exact(fd_.get(), MutableBytes(&byte, 1), soon()).ok()) {
        return Frame{};
      }
      decoder.feed(Bytes(&byte, 1));
    }
  }
  void send_raw(std::string_view bytes) { static_cast<void>(send_all(fd_.get(), as_bytes(bytes), soon()).ok()); }
  void send(std::uint16_t type, const ByteWriter& body) { send_raw(make_frame(store_wire::kSpec, type, body.str())); }
  void welcome() {
    accept();
    receive();
    send(store_wire::kWelcome, ByteWriter().raw(std::string(kSecretBytes, 's').data(), kSecretBytes).u8(0));
  }

 private:
  std::string dir_;
  Fd listener_;
  Fd fd_;
};

std::unique_ptr<StoreClient> welcomed(FakeAgent& agent) {
  std::thread agent_thread([&] { agent.welcome(); });
  auto client = StoreClient::connect(agent.path(), "token", 3, soon());
  agent_thread.join();
  REQUIRE(client.ok());
  return std::move(client).value();
}

// An engine that reads what has come for its rank while it is asked whether the job is alive.
class ReadingInterrupt final : public Interrupt {
 public:
  ReadingInterrupt(StoreClient& client, FakeAgent& agent, std::uint16_t type, ByteWriter body)
      : client_(client), agent_(agent), type_(type), body_(std::move(body)) {}

  Result<void> check() override {
    if (++asks_ > 1) {
      return Error(Code::kInternal, "what has been read was not looked at");
    }
    agent_.receive();
    agent_.send(type_, body_);
    pollfd p{client_.notice_fd(), POLLIN, 0};
    REQUIRE(::poll(&p, 1, soon().poll_ms()) == 1);
    static_cast<void>(client_.poll_notice());
    return {};
  }

 private:
  StoreClient& client_;
  FakeAgent& agent_;
  const std::uint16_t type_;
  const ByteWriter body_;
  int asks_ = 0;
};

ByteWriter exchanged(const std::string& key, const std::vector<std::string>& values) {
  ByteWriter body;
  body.text(key).u32(static_cast<std::uint32_t>(values.size()));
  for (const std::string& value : values) {
    body.text(value);
  }
  return body;
}

}  // namespace

TEST_CASE("a rank says who it is, is told the secret, exchanges, and says goodbye") {
  FakeAgent agent;
  std::string seen;
  std::thread agent_thread([&] {
    agent.accept();
    const Frame hello = agent.receive();
    ByteReader in(hello.body);
    seen += in.text() + " ";
    seen += std::to_string(in.i32());
    seen += in.finished() ? "" : " and more";
    agent.send(store_wire::kWelcome, ByteWriter().raw(std::string(kSecretBytes, 's').data(), kSecretBytes).u8(0));
    const Frame exchange = agent.receive();
    ByteReader body(exchange.body);
    const std::string key = body.text();
    const std::string value = body.text();
    seen += ", " + key + "=" + value;
    agent.send(store_wire::kExchanged, exchanged(key, {"a", "", "c"}));
    seen += ", type " + std::to_string(agent.receive().type);
  });
  {
    const auto client = StoreClient::connect(agent.path(), "token", 3, soon());
    REQUIRE(client.ok());
    CHECK(client.value()->secret()[31] == 's');
    CHECK(client.value()->exchange("mesh", "value", soon()).value() == std::vector<std::string>{"a", "", "c"});
    CHECK_FALSE(client.value()->poll_notice());
  }
  agent_thread.join();
  CHECK(seen == "token 3, mesh=value, type 6");
}

TEST_CASE("a rank that was stopped while its deadline passed still hears what came meanwhile") {
  FakeAgent agent;
  std::thread agent_thread([&] {
    agent.welcome();
    agent.receive();
    agent.send(store_wire::kExchanged, exchanged("k", {"v"}));
  });
  const Deadline passed = Deadline::after(-std::chrono::hours(1));
  const auto client = StoreClient::connect(agent.path(), "token", 3, passed);
  REQUIRE(client.ok());
  CHECK(client.value()->exchange("k", "v", passed).ok());
  agent_thread.join();
}

TEST_CASE("an agent that closes the connection has refused this process") {
  FakeAgent agent;
  std::thread agent_thread([&] {
    agent.accept();
    agent.receive();
    agent.hang_up();
  });
  const auto client = StoreClient::connect(agent.path(), "wrong", 3, soon());
  agent_thread.join();
  REQUIRE_FALSE(client.ok());
  CHECK(client.error().code() == Code::kAuth);
}

TEST_CASE("no agent, a silent agent and one that speaks something else are told apart") {
  CHECK(StoreClient::connect("/tmp/hvd-no-such-socket", "t", 0, soon()).error().code() == Code::kNotFound);
  FakeAgent silent;
  const auto late = StoreClient::connect(silent.path(), "t", 0, Deadline::after(std::chrono::milliseconds(10)));
  CHECK(late.error().code() == Code::kTimeout);
  FakeAgent other;
  std::thread agent_thread([&] {
    other.accept();
    other.send_raw("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  const auto garbage = StoreClient::connect(other.path(), "t", 0, soon());
  agent_thread.join();
  REQUIRE_FALSE(garbage.ok());
  CHECK(garbage.error().message().find("magic") != std::string::npos);
}

TEST_CASE("the agent's end is a notice, ends a waiting exchange, and stays known") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  std::thread agent_thread([&] {
    agent.receive();
    agent.hang_up();
  });
  const auto all = client->exchange("k", "v", soon());
  agent_thread.join();
  REQUIRE_FALSE(all.ok());
  CHECK(all.error().code() == Code::kLostPeer);
  CHECK(client->poll_notice()->cause == "the agent of this node is gone");
  CHECK(client->exchange("k2", "v", soon()).error().code() == Code::kLostPeer);
}

TEST_CASE("an exchange ends with the cause that its interrupt tells") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  test::EndingInterrupt interrupt(3);
  CHECK(client->exchange_while("k", "v", soon(), interrupt).error().message() == "rank 9 died");
}

TEST_CASE("an exchange ends with the values that came while its interrupt was asked, and were read by it") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  ReadingInterrupt interrupt(*client, agent, store_wire::kExchanged, exchanged("k", {"v", "w"}));
  const auto all = client->exchange_while("k", "v", soon(), interrupt);
  REQUIRE_MESSAGE(all.ok(), all.error().message());
  CHECK(all.value() == std::vector<std::string>{"v", "w"});
}

TEST_CASE("an exchange ends with the notice that came while its interrupt was asked, and was read by it") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  ReadingInterrupt interrupt(*client, agent, store_wire::kNotice, ByteWriter().text("rank 1 died"));
  CHECK(client->exchange_while("k", "v", soon(), interrupt).error().message() == "rank 1 died");
}

TEST_CASE("a notice makes the descriptor readable and is told in the agent's words") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  agent.send(store_wire::kNotice, ByteWriter().text("rank 2 was killed"));
  pollfd p{client->notice_fd(), POLLIN, 0};
  REQUIRE(::poll(&p, 1, 20000) == 1);
  CHECK(client->poll_notice()->cause == "rank 2 was killed");
  agent.send(store_wire::kNotice, ByteWriter().text("rank 1 was ended"));
  agent.hang_up();
  REQUIRE(::poll(&p, 1, 20000) == 1);
  CHECK(client->poll_notice()->cause == "rank 2 was killed");  // the first cause stays
}

TEST_CASE("a notice that comes with the values ends the exchange, because the job is over") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  std::string both = make_frame(store_wire::kSpec, store_wire::kExchanged, exchanged("k", {"v"}).str());
  append_frame(both, store_wire::kSpec, store_wire::kNotice, ByteWriter().text("rank 1 died").str());
  std::thread agent_thread([&] {
    agent.receive();
    agent.send_raw(both);
  });
  const auto all = client->exchange("k", "v", soon());
  agent_thread.join();
  // Sent in one write, but the kernel may hand it out in two reads: then the notice is still in the socket.
  CHECK((all.ok() || all.error().message() == "rank 1 died"));
  CHECK(client->poll_notice()->cause == "rank 1 died");
}

TEST_CASE("frames that make no sense end the conversation") {
  const std::vector<std::pair<std::uint16_t, std::string>> kFrames = {
      {store_wire::kExchanged, "short"},
      {store_wire::kExchanged, ByteWriter().text("k").u32(0xFFFFFFFFU).str()},
      {store_wire::kNotice, "x"},
      {store_wire::kHello, ""},
      {store_wire::kWelcome, std::string(kSecretBytes, 's')},
      {99, ""},
  };
  for (const auto& frame : kFrames) {
    CAPTURE(frame.first);
    FakeAgent agent;
    const auto client = welcomed(agent);
    agent.send_raw(make_frame(store_wire::kSpec, frame.first, frame.second));
    pollfd p{client->notice_fd(), POLLIN, 0};
    REQUIRE(::poll(&p, 1, 20000) == 1);
    const auto notice = client->poll_notice();
    REQUIRE(notice);
    CHECK(notice->cause.find("makes no sense") != std::string::npos);
    CHECK_FALSE(client->exchange("k", "v", soon()).ok());
  }
}

TEST_CASE("keys and values beyond the limits are refused here already") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  CHECK(client->exchange("", "v", soon()).error().code() == Code::kInvalid);
  CHECK(client->exchange("k", std::string(store_wire::kMaxValueBytes + 1, 'v'), soon()).error().code() ==
        Code::kInvalid);
}

TEST_CASE("a rank tells of a failure on the connection that it has, and on one of its own where it has none") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  client->tell({FailureNews::Kind::kOver, 2, 0, "shut down by rank 2"});
  const Frame over = agent.receive();
  CHECK(over.type == store_wire::kFailure);
  CHECK(FailureNews::decode(over.body).value().by == 2);

  const FailureNews news{FailureNews::Kind::kEnds, -1, 1, "ValueError: no"};
  const auto check_visit = [&] {
    agent.accept();
    const Frame visit = agent.receive();
    CHECK(visit.type == store_wire::kVisit);
    ByteReader in(visit.body);
    CHECK(in.text() == "token");
    CHECK(in.i32() == 3);
    const Frame failure = agent.receive();
    CHECK(failure.type == store_wire::kFailure);
    CHECK(failure.body == news.encode());
    CHECK(agent.receive().type == 0);
  };
  REQUIRE(StoreClient::tell_once(agent.path(), "token", 3, news, soon()).ok());
  check_visit();
  client->tell_apart(news);
  check_visit();
  CHECK_FALSE(StoreClient::tell_once(agent.path() + "x", "token", 3, news, soon()).ok());
}

TEST_CASE("news of a failure are one line of bounded length, and nothing else is taken for them") {
  const FailureNews news{FailureNews::Kind::kFollows, 7, 255, "a"};
  const std::string body = news.encode();
  CHECK(FailureNews::decode(body).value().exit_code == 255);
  for (std::size_t size = 0; size < body.size(); ++size) {
    CHECK_FALSE(FailureNews::decode(std::string_view(body).substr(0, size)).ok());
  }
  CHECK_FALSE(FailureNews::decode(body + "x").ok());
  CHECK_FALSE(FailureNews::decode(FailureNews{FailureNews::Kind::kEnds, -2, 1, ""}.encode()).ok());
  CHECK_FALSE(FailureNews::decode(FailureNews{FailureNews::Kind::kEnds, -1, 256, ""}.encode()).ok());
  CHECK_FALSE(FailureNews::decode(FailureNews{FailureNews::Kind::kEnds, -1, 1, "a\nb"}.encode()).ok());
  CHECK_FALSE(FailureNews::decode(FailureNews{FailureNews::Kind::kEnds, -1, 1, std::string(1001, 'a')}.encode()).ok());
  CHECK(one_line("a\tb\x1b[1m\n") == "a b [1m ");
  CHECK(one_line(std::string(999, 'a') + "\xc3\xa9") == std::string(999, 'a'));
}

TEST_CASE("an exchange that comes too late names the ranks that are missing") {
  const auto error_of = [](const std::string& key, const std::vector<std::string>& answer) {
    FakeAgent agent;
    const auto client = welcomed(agent);
    std::thread agent_thread([&] {
      agent.receive();
      const Frame asked = agent.receive();
      ByteReader in(asked.body);
      CHECK(asked.type == store_wire::kExchange);
      CHECK(in.text() == "?" + key);
      agent.send(store_wire::kExchanged, exchanged("?" + key, answer));
    });
    const auto late = client->exchange(key, "v", Deadline::after(std::chrono::milliseconds(20)));
    agent_thread.join();
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code() == Code::kTimeout);
    return late.error().message();
  };
  CHECK(error_of("mesh", {"1", "1"}) == "rank 1 has not called hvd.init(); it has ended with code 0");
  CHECK(error_of("mesh", {"1,2", "1,2"}) == "ranks 1,2 have not called hvd.init(); they have ended with code 0");
  CHECK(error_of("mesh", {"1-3", "2"}) == "ranks 1-3 have not called hvd.init(); rank 2 has ended with code 0");
  CHECK(error_of("mesh", {"1", ""}) ==
        "rank 1 has not called hvd.init() yet: call it earlier there, or allow more time");
  CHECK(error_of("set 4", {"0", ""}) == "rank 0 has not come to the exchange 'set 4'");
  for (const std::vector<std::string>& nothing : {std::vector<std::string>{"", ""}, {}, {"1"}}) {
    CHECK(error_of("mesh", nothing) == "waiting for all ranks to exchange 'mesh' timed out");
  }
}

TEST_CASE("an exchange that comes too late is an error also if nobody says who is missing") {
  FakeAgent agent;
  const auto client = welcomed(agent);
  const auto late = client->exchange("mesh", "v", Deadline::after(std::chrono::milliseconds(20)));
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().message() == "waiting for all ranks to exchange 'mesh' timed out");
}

}  // namespace hvd::store_client_test
