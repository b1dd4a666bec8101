// launcher/transport/dial_back against launcher/agent/dial, and against all sorts of strangers.
#include "launcher/transport/dial_back.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <random>
#include <thread>

#include "launcher/agent/dial.h"
#include "runtime/io/socket.h"
#include "tests/support/refusing_port.h"
#include "tests/unit/launcher/transport/recording.h"

namespace hvd::launch::dial_back_test {

using hvd::launch::test::has;

namespace {

JobSecret secret_of(std::uint8_t byte) {
  JobSecret secret;
  secret.fill(byte);
  return secret;
}

KeyPair launchers_pair() {
  return KeyPair::of(secret_of(11)).value();
}

CallKey key_of(std::uint8_t secret) {
  return {secret_of(secret), launchers_pair().share()};
}

// A launcher that waits for the agents of ranks 0 to N-1.
struct Launcher {
  explicit Launcher(int agents = 2, Duration patience = std::chrono::minutes(5), std::size_t most_callers = 256) {
    DialBackOptions options(secret_of(7), launchers_pair());
    options.is_local = true;
    options.patience = patience;
    options.most_callers = most_callers;
    transport = DialBack::listen(*loop, options, log).value();
    for (int rank = 0; rank < agents; ++rank) {
      sinks.push_back(std::make_unique<test::RecordingSink>());
      streams.push_back(transport->open(NodeTarget{"node", "", 0, rank}, *sinks.back()));
    }
  }
  template <typename Condition>
  bool wait(const Condition& condition) {
    const Deadline deadline = Deadline::after(std::chrono::minutes(5));
    while (!condition()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(deadline).ok());
    }
    return true;
  }
  Fd connect() {
    return connect_tcp(SocketAddress::parse(transport->addresses().front()).value(),
                       Deadline::after(std::chrono::minutes(5)))
        .value();
  }
  // What an agent does, on a thread of its own; its outcome comes by the loop.
  struct Call {
    std::thread thread;
    std::shared_ptr<Result<DialedLauncher>> outcome;  // null: not yet
    ~Call() { thread.join(); }
  };
  std::unique_ptr<Call> call(int rank, std::uint8_t secret = 7) {
    return call_at(transport->addresses(), rank, secret);
  }
  std::unique_ptr<Call> call_at(const std::vector<std::string>& addresses, int rank, std::uint8_t secret = 7) {
    auto made = std::make_unique<Call>();
    made->thread = std::thread([this, to = made.get(), addresses, rank, secret] {
      auto outcome = std::make_shared<Result<DialedLauncher>>(dial_launcher(
          {own_network_stack(), addresses}, key_of(secret), rank, Deadline::after(std::chrono::minutes(5))));
      loop->post([to, outcome] { to->outcome = outcome; });
    });
    return made;
  }
  Result<DialedLauncher> finish(const std::unique_ptr<Call>& agent) {
    REQUIRE(wait([&agent] { return agent->outcome != nullptr; }));
    return std::move(*agent->outcome);
  }

  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  test::RecordingLog log;
  std::unique_ptr<DialBack> transport;
  std::vector<std::unique_ptr<test::RecordingSink>> sinks;
  std::vector<std::unique_ptr<Stream>> streams;
};

void say(const Fd& fd, std::string_view bytes) {
  REQUIRE(send_all(fd.get(), as_bytes(bytes), Deadline::after(std::chrono::minutes(5))).ok());
}

std::string hear(const Fd& fd, std::size_t size) {
  std::string bytes(size, '\0');
  const MutableBytes into(reinterpret_cast<std::uint8_t*>(bytes.data()), size);
  REQUIRE(recv_exact(fd.get(), into, Deadline::after(std::chrono::minutes(5))).ok());
  return bytes;
}

// An agent's end of a session, once it has called.
struct Agent {
  explicit Agent(DialedLauncher dialed)
      : fd(std::move(dialed.fd)), sealer(dialed.keys.sending), opener(dialed.keys.receiving) {}

  void say_sealed(std::string_view bytes) {
    std::string wire;
    REQUIRE(sealer.seal(bytes, wire).ok());
    say(fd, wire);
  }
  std::string hear_sealed(std::size_t size) {
    opener.feed(as_bytes(hear(fd, size + kRecordOverhead)));
    return std::string(as_text(opener.next().value().value()));
  }

  Fd fd;
  RecordSealer sealer;
  RecordOpener opener;
};

// What an agent claims that calls this launcher where it is.
LinkClaim claim_of(const Launcher& launcher, LinkRole role, int from, int to) {
  return {role, from, to, "node1", launcher.transport->addresses().front()};
}

HandshakeConnector caller_of(const LinkClaim& claim) {
  return {secret_of(7), claim, make_nonce().value(), KeyPair::make().value(), launchers_pair().share()};
}

HandshakeConnector agent_of(const Launcher& launcher, int rank) {
  return caller_of(claim_of(launcher, LinkRole::kAgent, rank, kLauncher));
}

// Whether the launcher closes it without another byte.
bool is_closed(Launcher& launcher, const Fd& fd) {
  char byte = 0;
  ssize_t got = -1;
  launcher.wait([&] {
    got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
      launcher.loop->after(std::chrono::milliseconds(1), [] {});
    }
    return got >= 0 || errno != EAGAIN;
  });
  return got <= 0;
}

}  // namespace

TEST_CASE("an agent that calls gets the stream of its rank, whatever the order, and nobody is heard after the last") {
  Launcher launcher;
  auto second = launcher.call(1);
  REQUIRE(launcher.wait([&] { return launcher.sinks[1]->is_open; }));
  CHECK_FALSE(launcher.sinks[0]->is_open);
  CHECK(launcher.transport->is_listening());
  auto first = launcher.call(0);
  REQUIRE(launcher.wait([&] { return launcher.sinks[0]->is_open; }));
  CHECK_FALSE(launcher.transport->is_listening());
  Agent agents[] = {Agent(launcher.finish(first).value()), Agent(launcher.finish(second).value())};
  for (int rank = 0; rank < 2; ++rank) {
    launcher.streams[static_cast<std::size_t>(rank)]->write("to " + std::to_string(rank));
    CHECK(agents[rank].hear_sealed(4) == "to " + std::to_string(rank));
    agents[rank].say_sealed("from " + std::to_string(rank));
    REQUIRE(launcher.wait([&] { return launcher.sinks[static_cast<std::size_t>(rank)]->size == 6; }));
    CHECK(launcher.sinks[static_cast<std::size_t>(rank)]->bytes == "from " + std::to_string(rank));
    CHECK(launcher.sinks[static_cast<std::size_t>(rank)]->opened.is_local);
    CHECK(launcher.sinks[static_cast<std::size_t>(rank)]->opened.node_address == "127.0.0.1");
  }
  CHECK(launcher.log.text.empty());
}

TEST_CASE("bytes that follow the handshake at once are the stream's") {
  Launcher launcher(1);
  const Fd agent = launcher.connect();
  HandshakeConnector handshake = agent_of(launcher, 0);
  REQUIRE(launcher.wait([&] { return launcher.transport->callers() == 1; }));
  std::string said = handshake.feed(as_bytes(hear(agent, kGreetingBytes))).value();
  RecordSealer sealer(handshake.keys().sending);
  REQUIRE(sealer.seal("first words", said).ok());
  say(agent, said);
  REQUIRE(launcher.wait([&] { return launcher.sinks[0]->size == 11; }));
  CHECK(launcher.sinks[0]->bytes == "first words");
}

TEST_CASE("an agent whose connection breaks is told as lost") {
  Launcher launcher(1);
  auto agent = launcher.call(0);
  REQUIRE(launcher.wait([&] { return launcher.sinks[0]->is_open; }));
  launcher.finish(agent).value().fd.reset();
  REQUIRE(launcher.wait([&] { return launcher.sinks[0]->closed.has_value(); }));
  CHECK(launcher.sinks[0]->closed->code() == Code::kLostPeer);
}

TEST_CASE("an agent with another secret is refused, and does not take our launcher for its own") {
  Launcher launcher(1);
  auto stranger = launcher.call(0, 8);
  const auto outcome = launcher.finish(stranger);
  REQUIRE_FALSE(outcome.ok());
  CHECK(has(outcome.error().message(), "cannot call hvdrun back (127.0.0.1:"));
  CHECK(has(launcher.log.text, "it does not know the secret of this job"));
  CHECK_FALSE(launcher.sinks[0]->is_open);
  auto agent = launcher.call(0);
  CHECK(launcher.finish(agent).ok());
}

TEST_CASE("an agent does not believe a launcher that does not know the secret") {
  Launcher impostor(1);  // knows 7; the agent's is 8
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const std::string address = SocketAddress::local_of(listener.get()).value().text();
  auto agent = std::async(std::launch::async, [&] {
    return dial_launcher({own_network_stack(), {address}}, key_of(8), 0, Deadline::after(std::chrono::minutes(5)));
  });
  for (int round = 0; round < 3; ++round) {
    const Fd caller = accept_one(listener.get(), Deadline::after(std::chrono::minutes(5))).value();
    HandshakeAcceptor handshake(secret_of(7), kLauncher, make_nonce().value(), launchers_pair());
    say(caller, handshake.greeting());
    std::string claim;
    auto heard = Result<std::optional<LinkClaim>>(std::nullopt);
    while (heard.ok() && handshake.wanted() > 0) {
      const std::string piece = hear(caller, handshake.wanted());
      claim += piece;
      heard = handshake.feed(as_bytes(piece));
    }
    CHECK_FALSE(heard.ok());
    say(caller, claim.substr(kClaimBytes - kMacBytes, kMacBytes));  // its own mac, reflected
  }
  CHECK(has(agent.get().error().message(), "does not know the secret"));
}

TEST_CASE("garbage, another role, a rank that is not ours and a second call for one rank close that connection only") {
  Launcher launcher(2);
  auto agent = launcher.call(0);
  const Fd first = std::move(launcher.finish(agent).value().fd);

  std::mt19937 random(5);
  for (const std::size_t size : {kClaimBytes, kClaimBytes + 1, std::size_t{100000}}) {
    std::string garbage(size, '\0');
    for (char& c : garbage) {
      c = static_cast<char>(random());
    }
    const Fd stranger = launcher.connect();
    launcher.wait([&] { return launcher.transport->callers() == 1; });
    hear(stranger, kGreetingBytes);
    static_cast<void>(send_all(stranger.get(), as_bytes(garbage), Deadline::after(Duration::zero())));
    CHECK(is_closed(launcher, stranger));
  }
  CHECK(has(launcher.log.text, "the other end is no part of hvdrun"));

  for (const LinkClaim& claim :
       {claim_of(launcher, LinkRole::kControl, 1, kLauncher), claim_of(launcher, LinkRole::kAgent, 1, 0),
        claim_of(launcher, LinkRole::kAgent, 2, kLauncher), claim_of(launcher, LinkRole::kAgent, -1, kLauncher),
        claim_of(launcher, LinkRole::kAgent, 0, kLauncher)}) {
    const Fd stranger = launcher.connect();
    HandshakeConnector handshake = caller_of(claim);
    launcher.wait([&] { return launcher.transport->callers() == 1; });
    say(stranger, handshake.feed(as_bytes(hear(stranger, kGreetingBytes))).value());
    CHECK(is_closed(launcher, stranger));
  }
  CHECK(has(launcher.log.text, "it is agent 0 on 'node1', which has called already or is not ours"));
  CHECK_FALSE(launcher.sinks[0]->closed.has_value());
  CHECK_FALSE(launcher.sinks[1]->is_open);

  auto other = launcher.call(1);
  CHECK(launcher.finish(other).ok());
}

TEST_CASE("strangers who call again and again are told once by their address, and counted") {
  Launcher launcher;
  for (int i = 0; i < 50; ++i) {
    const Fd stranger = launcher.connect();
    REQUIRE(launcher.wait([&launcher] { return launcher.transport->callers() == 1; }));
    hear(stranger, kGreetingBytes);
    say(stranger, std::string(kClaimBytes, 'x'));
    REQUIRE(is_closed(launcher, stranger));
  }
  CHECK(launcher.log.warnings == 1);
  launcher.streams.clear();
  CHECK(launcher.log.warnings == 2);
  CHECK(has(launcher.log.text, "49 more calls were refused, of 127.0.0.1\n"));
}

TEST_CASE("listeners that can take no call say so once, and one that goes meanwhile leaves nothing behind") {
  Launcher launcher;
  const Fd one = launcher.connect();
  const Fd other = launcher.connect();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(Fd(::dup(one.get())).get());
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  for (int i = 0; i < 6; ++i) {
    REQUIRE(launcher.loop->turn(Deadline::after(std::chrono::milliseconds(150))).ok());
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(launcher.log.warnings == 1);
  CHECK(has(launcher.log.text, "an agent's call cannot be taken yet: "));
  CHECK(launcher.wait([&launcher] { return launcher.transport->callers() == 2; }));
  launcher.streams.clear();
  launcher.transport.reset();
  REQUIRE(launcher.loop->turn(Deadline::after(std::chrono::milliseconds(150))).ok());
}

TEST_CASE("a caller that leaves without a word is no cause for a warning, one that leaves amid its claim is") {
  Launcher launcher(1);
  const auto leave = [&launcher](bool hears_greeting, std::size_t claim_bytes) {
    const Fd caller = launcher.connect();
    REQUIRE(launcher.wait([&] { return launcher.transport->callers() == 1; }));
    pollfd greeting{caller.get(), POLLIN, 0};
    REQUIRE(::poll(&greeting, 1, Deadline::after(std::chrono::minutes(5)).poll_ms()) == 1);
    if (hears_greeting) {
      HandshakeConnector handshake = agent_of(launcher, 0);
      say(caller, handshake.feed(as_bytes(hear(caller, kGreetingBytes))).value().substr(0, claim_bytes));
    }
  };
  const auto is_rid_of_it = [&launcher] { return launcher.wait([&] { return launcher.transport->callers() == 0; }); };
  leave(true, 0);  // its end comes as the end of the stream
  REQUIRE(is_rid_of_it());
  CHECK(has(launcher.log.text, "it has closed the connection"));
  leave(false, 0);  // as a reset, for there is something that it has not read
  REQUIRE(is_rid_of_it());
  CHECK(has(launcher.log.text, "Connection reset by peer"));
  CHECK(launcher.log.warnings == 0);
  leave(true, 5);
  REQUIRE(is_rid_of_it());
  CHECK(launcher.log.warnings == 1);
  auto agent = launcher.call(0);
  CHECK(launcher.finish(agent).ok());
}

TEST_CASE("an agent that calls at several addresses of the launcher's leaves no warning") {
  Launcher launcher(1);
  const std::string address = launcher.transport->addresses().front();
  auto agent = launcher.call_at({address, address, address, address}, 0);
  REQUIRE(launcher.finish(agent).ok());
  REQUIRE(launcher.wait([&] { return launcher.transport->callers() == 0; }));
  CHECK(launcher.log.warnings == 0);
}

TEST_CASE("a whole conversation that was overheard cannot be played again") {
  Launcher launcher(2);
  const Fd agent = launcher.connect();
  HandshakeConnector handshake = agent_of(launcher, 1);
  launcher.wait([&] { return launcher.transport->callers() == 1; });
  const std::string overheard = handshake.feed(as_bytes(hear(agent, kGreetingBytes))).value();
  const Fd stranger = launcher.connect();
  launcher.wait([&] { return launcher.transport->callers() == 2; });
  hear(stranger, kGreetingBytes);
  say(stranger, overheard);
  CHECK(is_closed(launcher, stranger));
  CHECK(has(launcher.log.text, "it does not know the secret of this job"));
  CHECK_FALSE(launcher.sinks[1]->is_open);
}

TEST_CASE("a caller that says nothing, or not all, has only so much time") {
  Launcher launcher(1, std::chrono::milliseconds(1));
  const Fd silent = launcher.connect();
  CHECK(is_closed(launcher, silent) == false);  // the greeting
  hear(silent, kGreetingBytes - 1);
  const Fd half = launcher.connect();
  CHECK(is_closed(launcher, silent));
  REQUIRE(launcher.wait([&] { return launcher.transport->callers() == 0; }));
  CHECK(has(launcher.log.text, "it has not proven itself in time"));
}

TEST_CASE("of too many callers that prove nothing the oldest goes, and an agent gets through") {
  Launcher launcher(1, std::chrono::minutes(5), 4);
  std::vector<Fd> silent;
  for (int i = 0; i < 9; ++i) {
    silent.push_back(launcher.connect());
  }
  auto agent = launcher.call(0);
  CHECK(launcher.finish(agent).ok());
  CHECK(launcher.transport->callers() <= 4);
  CHECK(has(launcher.log.text, "too many callers"));
}

TEST_CASE("a stream that waits no more is told as over, and when none does nobody is listened to") {
  Launcher launcher(2);
  launcher.streams[0]->close_input();
  REQUIRE(launcher.wait([&] { return launcher.sinks[0]->closed.has_value(); }));
  CHECK(launcher.sinks[0]->closed->code() == kAgentEnded);
  CHECK(launcher.transport->is_listening());
  launcher.streams[1].reset();
  CHECK_FALSE(launcher.transport->is_listening());
}

TEST_CASE("of several addresses the one that leads to the launcher is taken") {
  Launcher launcher(1);
  const RefusingPort refusing;
  std::vector<std::string> addresses = launcher.transport->addresses();
  addresses.insert(addresses.begin(), refusing.text());
  const auto agent = launcher.call_at(addresses, 0);
  CHECK(launcher.finish(agent).ok());
}

TEST_CASE("an agent that reaches nobody says where it tried") {
  const RefusingPort refusing;
  const std::string address = refusing.text();
  const CallPlace place{own_network_stack(), {address}};
  const auto outcome = dial_launcher(place, key_of(7), 0, Deadline::after(std::chrono::minutes(5)));
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.error().code() == Code::kUnreachable);
  CHECK(has(outcome.error().message(), "connect to " + address + ": Connection refused"));
  const CallPlace nonsense{own_network_stack(), {"nonsense"}};
  CHECK_FALSE(dial_launcher(nonsense, key_of(7), 0, Deadline::after(std::chrono::minutes(5))).ok());
}

TEST_CASE("an agent does not take who has the secret for its launcher, without the launcher's private key") {
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const std::string address = SocketAddress::local_of(listener.get()).value().text();
  auto agent = std::async(std::launch::async, [&] {
    return dial_launcher({own_network_stack(), {address}}, key_of(7), 0, Deadline::after(std::chrono::minutes(5)));
  });
  for (int round = 0; round < 3; ++round) {
    const Fd caller = accept_one(listener.get(), Deadline::after(std::chrono::minutes(5))).value();
    HandshakeAcceptor handshake(secret_of(7), kLauncher, make_nonce().value(), KeyPair::make().value());
    say(caller, handshake.greeting());
    std::uint8_t none = 0;
    CHECK_FALSE(recv_exact(caller.get(), MutableBytes(&none, 1), Deadline::after(std::chrono::minutes(5))).ok());
  }
  CHECK(has(agent.get().error().message(), "the other end is not the one that this process was to call"));
}

TEST_CASE("a call that is relayed from another address is refused, though all that was said is true") {
  Launcher launcher(1);
  const Fd relay = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const std::string address = SocketAddress::local_of(relay.get()).value().text();
  auto agent = launcher.call_at({address}, 0);
  for (int round = 0; round < 3; ++round) {
    const Fd from_agent = accept_one(relay.get(), Deadline::after(std::chrono::minutes(5))).value();
    const Fd to_launcher = launcher.connect();
    REQUIRE(launcher.wait([&] { return launcher.transport->callers() == 1; }));
    say(from_agent, hear(to_launcher, kGreetingBytes));
    std::string claim = hear(from_agent, kClaimBytes);
    claim += hear(from_agent, static_cast<std::uint8_t>(claim[10]) + static_cast<std::uint8_t>(claim[11]));
    say(to_launcher, claim);
    CHECK(is_closed(launcher, to_launcher));
  }
  CHECK_FALSE(launcher.finish(agent).ok());
  CHECK(has(launcher.log.text, "has called " + address + ", and this is " + launcher.transport->addresses().front() +
                                   ": somebody relays the call"));
  CHECK_FALSE(launcher.sinks[0]->is_open);
}

TEST_CASE("bytes that somebody puts into a session, or changes in it, end it, and none of them is heard") {
  for (const bool is_changed : {false, true}) {
    Launcher launcher(1);
    auto call = launcher.call(0);
    Agent agent(launcher.finish(call).value());
    agent.say_sealed("true");
    REQUIRE(launcher.wait([&] { return launcher.sinks[0]->size == 4; }));
    std::string wire;
    REQUIRE(agent.sealer.seal("echo victims-own-command", wire).ok());
    if (is_changed) {
      wire[kRecordHeaderBytes] = static_cast<char>(wire[kRecordHeaderBytes] ^ 1);
    } else {
      wire = std::string("\x08\0\0\0", 4) + "injected" + std::string(kTagBytes, 't');
    }
    say(agent.fd, wire);
    REQUIRE(launcher.wait([&] { return launcher.sinks[0]->closed.has_value(); }));
    CHECK(launcher.sinks[0]->bytes == "true");
    CHECK(has(launcher.sinks[0]->closed->message(), "what came was not sent so by the other end"));
  }
}

TEST_CASE("an agent calls no address of its own node's, unless the launcher is on that node") {
  const std::vector<std::string> own = {"10.0.0.2", "172.17.0.1", "fd00::2"};
  CHECK(addresses_elsewhere({"10.0.0.1:5", "172.17.0.1:6", "[fd00::1]:7", "[fd00::2]:8", "127.0.0.1:9", "[::1]:1"},
                            own) == std::vector<std::string>{"10.0.0.1:5", "[fd00::1]:7"});
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const std::string address = SocketAddress::local_of(listener.get()).value().text();
  const CallPlace elsewhere{"another machine's", {address}};
  const auto outcome = dial_launcher(elsewhere, key_of(7), 0, Deadline::after(std::chrono::minutes(5)));
  CHECK(outcome.error().message() ==
        "cannot call hvdrun back: each of its addresses is one of this host too (" + address + ")");
  CHECK_FALSE(accept_ready(listener.get()).value().is_open());
}

}  // namespace hvd::launch::dial_back_test
