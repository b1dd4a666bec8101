// Joining: what happens at the listening sockets while ranks meet.
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/base/open_files.h"
#include "runtime/io/socket.h"
#include "runtime/link/mesh_peer.h"
#include "runtime/rendezvous/handshake.h"
#include "tests/multi/thread_job.h"
#include "tests/support/refusing_port.h"

namespace hvd::joining_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

namespace {

bool mentions(const std::optional<Error>& error, const std::string& part) {
  return error && error->message().find(part) != std::string::npos;
}

// A store whose user sees, and may change, what the ranks tell each other when they meet. The listeners are open then.
class SpyStore final : public Store {
 public:
  using OnMesh = std::function<void(std::vector<std::string>& values)>;

  SpyStore(std::unique_ptr<Store> store, OnMesh on_mesh) : store_(std::move(store)), on_mesh_(std::move(on_mesh)) {
    secret_ = store_->secret();
  }
  void set_secret(const JobSecret& secret) { secret_ = secret; }

  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override {
    HVD_TRY_ASSIGN(std::vector<std::string> values, store_->exchange_while(key, value, deadline, interrupt));
    if (key == "mesh" && on_mesh_) {
      on_mesh_(values);
    }
    return values;
  }
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  [[nodiscard]] int notice_fd() const override { return store_->notice_fd(); }
  std::optional<Notice> poll_notice() override { return store_->poll_notice(); }

 private:
  std::unique_ptr<Store> store_;
  OnMesh on_mesh_;
  JobSecret secret_;
};

Fd dial(const MeshPeer& peer, bool by_unix) {
  auto fd = by_unix ? connect_unix(peer.unix_path, test_deadline())
                    : connect_tcp(SocketAddress::make(peer.tcp_ip, peer.tcp_port).value(), test_deadline());
  return std::move(fd).value();
}

// A stranger that speaks our protocol with another secret. True when it was refused.
bool is_refused_with_wrong_secret(Fd& fd, const LinkClaim& claim) {
  HandshakeConnector handshake(make_secret(99), claim, make_nonce().value());
  std::string greeting(kGreetingBytes, '\0');
  MutableBytes space(reinterpret_cast<std::uint8_t*>(greeting.data()), greeting.size());
  if (!recv_exact(fd.get(), space, test_deadline()).ok()) {
    return false;
  }
  auto answer = handshake.feed(as_bytes(greeting));
  if (!answer.ok() || !send_all(fd.get(), as_bytes(answer.value()), test_deadline()).ok()) {
    return false;
  }
  std::uint8_t byte = 0;
  return !recv_exact(fd.get(), MutableBytes(&byte, 1), test_deadline()).ok();
}

// All that a port may see, some of it left open until the test ends.
struct Strangers {
  std::vector<Fd> open;
  bool were_refused = true;

  void visit(const MeshPeer& peer, bool by_unix) {
    for (int i = 0; i < 5; ++i) {
      open.push_back(dial(peer, by_unix));  // silence
    }
    dial(peer, by_unix);  // gone at once
    for (const std::string& text :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(3, 'x'), std::string(5000, '\0')}) {
      open.push_back(dial(peer, by_unix));
      // It may have been thrown out before it had said everything.
      static_cast<void>(send_all(open.back().get(), as_bytes(text), test_deadline()).ok());
    }
    Fd fd = dial(peer, by_unix);
    were_refused = were_refused && is_refused_with_wrong_secret(fd, LinkClaim{LinkRole::kControl, 1, 0});
  }
};

Result<void> do_one_allreduce(Rank& rank) {
  std::vector<float> data(1000, 1.0F);
  HVD_TRY(rank.backend.allreduce(data.data(), data.size(), Dtype::kFloat32, ReduceOp::kSum, rank.interrupt));
  const bool is_right = data.front() == static_cast<float>(rank.map.size) && data.back() == data.front();
  return is_right ? Result<void>() : Error(Code::kInternal, "wrong result");
}

// What one who poses as rank 0 says to rank 1.
struct Impostor {
  const char* what;
  std::string at_once;
  bool trickles;  // then a byte each 50 ms
  bool is_endless;
  const char* words;  // of rank 1's error
};

void pose(int listener, const Impostor& impostor, const std::atomic<bool>& is_over) {
  std::vector<Fd> callers;  // control and data
  while (callers.size() < 2 && !is_over) {
    auto caller = accept_one(listener, Deadline::after(std::chrono::milliseconds(50)));
    if (caller.ok()) {
      callers.push_back(std::move(caller).value());
      static_cast<void>(send_all(callers.back().get(), as_bytes(impostor.at_once), test_deadline()).ok());
    }
  }
  const std::string more(impostor.is_endless ? 65536 : 1, impostor.is_endless ? 'x' : '\0');
  while (!is_over) {
    for (const Fd& caller : callers) {
      if (impostor.trickles || impostor.is_endless) {
        static_cast<void>(send_all(caller.get(), as_bytes(more), Deadline::after(Duration::zero())).ok());
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // sleeps: a slow peer is what is tested
  }
}

// Rank 1's error, with another word for the impostor's address.
std::string error_at(const Impostor& impostor, bool is_sealed, Duration limit) {
  const auto listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value());
  const std::uint16_t port = SocketAddress::local_of(listener.value().get()).value().port();
  ThreadJob job({1, 1});
  JobOptions options;
  options.deadline = Deadline::after(limit);
  options.is_sealed = [&](int) { return is_sealed; };
  options.wrap_store = [&](std::unique_ptr<Store> store, int rank) -> std::unique_ptr<Store> {
    return std::make_unique<SpyStore>(std::move(store), [&, rank](std::vector<std::string>& values) {
      MeshPeer leader = decode_mesh_peer(values[0], 0).value();
      leader.tcp_port = rank == 1 ? port : leader.tcp_port;
      values[0] = encode(leader);
    });
  };
  std::atomic<bool> is_over = false;
  std::thread other([&] { pose(listener.value().get(), impostor, is_over); });
  const auto errors = job.run(options, do_one_allreduce);
  is_over = true;
  other.join();
  const std::string address = "rank 0 at 127.0.0.1:" + std::to_string(port);
  const std::string text = errors[1] ? errors[1]->message() : "no error";
  const std::size_t at = text.find(address);
  return at == std::string::npos ? text : std::string(text).replace(at, address.size(), "IMPOSTOR");
}

// The same within longer and longer limits, until these words are there: a busy machine does not come so far within a
// short one.
std::string error_with(const std::string& words, const Impostor& impostor, bool is_sealed) {
  std::string error;
  for (int limit_s = 12; limit_s < 200 && error.find(words) == std::string::npos; limit_s *= 4) {
    error = error_at(impostor, is_sealed, std::chrono::seconds(limit_s));
  }
  return error;
}

// A job that has run so, until `is_far`, and the errors of its ranks.
std::unique_ptr<ThreadJob> run_until(const Nodes& nodes, JobOptions options, int limit_s,
                                     std::vector<std::optional<Error>>& errors, const std::function<bool()>& is_far) {
  for (;; limit_s *= 4) {
    auto job = std::make_unique<ThreadJob>(nodes);
    options.deadline = Deadline::after(std::chrono::seconds(limit_s));
    errors = job->run(options, do_one_allreduce);
    if (is_far() || limit_s * 4 > 200) {
      return job;
    }
  }
}

}  // namespace

TEST_CASE("strangers at the listening sockets are dropped with a line each and do not disturb the ranks") {
  ThreadJob job({2, 1, 1});
  Strangers strangers;
  JobOptions options;
  options.wrap_store = [&](std::unique_ptr<Store> store, int rank) -> std::unique_ptr<Store> {
    SpyStore::OnMesh visit;
    if (rank == 1) {  // before it connects itself, so that the strangers come first
      visit = [&](std::vector<std::string>& values) {
        const MeshPeer leader = decode_mesh_peer(values[0], 0).value();
        strangers.visit(leader, false);
        strangers.visit(leader, true);
      };
    }
    return std::make_unique<SpyStore>(std::move(store), visit);
  };
  // The ten silent ones hold nobody up: each is given 10 s, and the ranks would be late if they waited for one after
  // the other.
  for (const auto& error : job.run(options, do_one_allreduce)) {
    INFO((error ? error->message() : "ok"));
    CHECK_FALSE(error.has_value());
  }
  CHECK(strangers.were_refused);
  CHECK(job.log().count_of("it does not know the secret of this job") == 2);
  CHECK(job.log().count_of("the other end is no part of hvdrun") == 4);
  CHECK(job.scratch().is_empty());
}

TEST_CASE("ranks that have to open more files than their soft limit allows raise it before they meet") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  ThreadJob job({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  rlimit low = before;
  low.rlim_cur = count_open_files() + 30;  // for the test's own; twelve ranks have some 150 connections
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  for (const auto& error : job.run({}, do_one_allreduce)) {
    INFO((error ? error->message() : "ok"));
    CHECK_FALSE(error.has_value());
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("errors of a process set's connections name ranks and nodes by their numbers in the job") {
  ScratchDir scratch;
  LinesLog log;
  const auto hub = MemoryHub::create(3, make_secret(1)).value();
  std::vector<std::string> ends(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      MemoryStore store(hub, rank);
      MeshOptions options;
      const RankMap map = map_of({2, 1}, rank);
      options.node_address = "127.0.0." + std::to_string(map.node_index + 1);
      options.scratch_dir = scratch.path();
      options.in_job = {{4, 5, 9}, {1, 1, 3}};
      const auto mesh = Mesh::join(map, store, options, log, test_deadline());
      if (mesh.ok()) {
        const HostLink::Ends of = mesh.value()->ends_of(1 - map.node_index);
        ends[static_cast<std::size_t>(rank)] = of.here + " to " + of.there;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(ends == std::vector<std::string>{"rank 4 to node 3 (rank 9)", "rank 5 to node 3 (rank 9)",
                                         "rank 9 to node 1 (rank 4)"});
}

TEST_CASE("a rank with another secret cannot join and hears whom it could not convince") {
  JobOptions options;
  options.wrap_store = [](std::unique_ptr<Store> store, int rank) -> std::unique_ptr<Store> {
    auto spy = std::make_unique<SpyStore>(std::move(store), nullptr);
    if (rank == 1) {
      spy->set_secret(make_secret(50));
    }
    return spy;
  };
  std::vector<std::optional<Error>> errors;
  const auto job = run_until({1, 1}, options, 12, errors, [&] {
    return mentions(errors[0], "control connection from rank 1") && mentions(errors[1], "rank 0 at 127.0.0.1:");
  });
  REQUIRE(errors[0].has_value());
  CHECK(errors[0]->code() == Code::kTimeout);
  CHECK(mentions(errors[0], "control connection from rank 1"));
  REQUIRE(errors[1].has_value());
  CHECK(errors[1]->code() == Code::kAuth);
  CHECK(mentions(errors[1], "rank 0 at 127.0.0.1:"));
  CHECK(job->log().count_of("it does not know the secret of this job") >= 1);
}

TEST_CASE("an impostor at a rank's address is found out, by whatever it says") {
  const auto listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value());
  const std::uint16_t port = SocketAddress::local_of(listener.value().get()).value().port();
  ThreadJob job({1, 1});
  JobOptions options;
  options.tells_failure = true;  // rank 0 would wait for rank 1 until the deadline
  Fd accepted;
  options.wrap_store = [&](std::unique_ptr<Store> store, int rank) -> std::unique_ptr<Store> {
    SpyStore::OnMesh divert;
    if (rank == 1) {
      divert = [&](std::vector<std::string>& values) {
        MeshPeer leader = decode_mesh_peer(values[0], 0).value();
        leader.tcp_port = port;
        values[0] = encode(leader);
      };
    }
    return std::make_unique<SpyStore>(std::move(store), divert);
  };
  std::thread impostor([&] {
    accepted = accept_one(listener.value().get(), test_deadline()).value();
    const std::string text = "220 mail.example.org ESMTP ready, and what else a mail server says to all who call\r\n";
    static_cast<void>(send_all(accepted.get(), as_bytes(text), test_deadline()).ok());
  });
  const auto errors = job.run(options, do_one_allreduce);
  impostor.join();
  REQUIRE(errors[1].has_value());
  CHECK(errors[1]->code() == Code::kProtocol);
  CHECK(mentions(errors[1], "rank 0 at 127.0.0.1:" + std::to_string(port)));
}

TEST_CASE("an impostor that is silent, slow or endless, before or after its greeting, holds nobody up for longer") {
  const std::string greeting = HandshakeAcceptor(make_secret(99), 0, make_nonce().value()).greeting();
  const std::vector<Impostor> all = {
      {"silence", "", false, false, "IMPOSTOR (connected, silent)"},
      {"half a greeting", greeting.substr(0, 20), false, false, "IMPOSTOR (connected, silent)"},
      {"a byte now and then", "H", true, false, "IMPOSTOR: the other end is no part of hvdrun"},
      {"slow greeting", greeting.substr(0, 9), true, false, "IMPOSTOR"},
      {"endless text", "", false, true, "IMPOSTOR: the other end is no part of hvdrun"},
      {"a greeting and silence", greeting, false, false, "IMPOSTOR (connected, silent)"},
      {"a greeting and a byte now and then", greeting, true, false, "IMPOSTOR"},
      {"a greeting and endless text", greeting, false, true, "IMPOSTOR: the other end does not know the secret"}};
  // At once, for most last as long as the deadline.
  std::vector<std::future<std::string>> errors;
  errors.reserve(all.size());
  for (const Impostor& impostor : all) {
    errors.push_back(std::async(std::launch::async, [&] { return error_with(impostor.words, impostor, false); }));
  }
  const std::string silent = "IMPOSTOR (connected, silent)";
  const std::string plain =  // it says that it does not encrypt
      "IMPOSTOR: the connection is to be encrypted here, and at the other end it is not";
  auto sealed_silence = std::async(std::launch::async, [&] { return error_with(silent, all[0], true); });
  auto sealed_greeting = std::async(std::launch::async, [&] { return error_with(plain, all[5], true); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string error = errors[i].get();
    CHECK_MESSAGE(error.find(all[i].words) != std::string::npos, all[i].what << ": " << error);
  }
  CHECK(sealed_silence.get().find(silent) != std::string::npos);
  CHECK(sealed_greeting.get().find(plain) != std::string::npos);
}

TEST_CASE("an address where nobody listens is named with its rank at once") {
  ThreadJob job({1, 1});
  JobOptions options;
  options.tells_failure = true;  // rank 0 would wait for rank 1 until the deadline
  const RefusingPort nobody;
  const std::uint16_t port = nobody.port();
  options.wrap_store = [&](std::unique_ptr<Store> store, int rank) -> std::unique_ptr<Store> {
    SpyStore::OnMesh divert;
    if (rank == 1) {
      divert = [&](std::vector<std::string>& values) {
        MeshPeer leader = decode_mesh_peer(values[0], 0).value();
        leader.tcp_port = port;
        values[0] = encode(leader);
      };
    }
    return std::make_unique<SpyStore>(std::move(store), divert);
  };
  const auto errors = job.run(options, do_one_allreduce);
  REQUIRE(errors[1].has_value());
  CHECK(errors[1]->code() == Code::kUnreachable);
  CHECK(mentions(errors[1], "rank 0 at 127.0.0.1:" + std::to_string(port)));
}

TEST_CASE("a rank that never comes ends the others' joining at the deadline, and is named") {
  JobOptions options;
  options.takes_part = [](int rank) { return rank != 2; };
  std::vector<std::optional<Error>> errors;
  const auto job = run_until({2, 1}, options, 16, errors,
                             [&] { return mentions(errors[0], "rank 2") && mentions(errors[1], "rank 2"); });
  for (const int rank : {0, 1}) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::kTimeout);
    CHECK(mentions(error, "rank 2"));
  }
  CHECK(job->scratch().is_empty());
}

TEST_CASE("ranks that were stopped while they joined, and beyond their deadline, go on joining") {
  ThreadJob job({2, 1, 1});
  JobOptions options;
  options.deadline = Deadline::after(-std::chrono::hours(1));
  for (const auto& error : job.run(options, do_one_allreduce)) {
    INFO((error ? error->message() : "ok"));
    CHECK_FALSE(error.has_value());
  }
}

TEST_CASE("a rank that dies after it has published ends the joining of the others with the cause") {
  ThreadJob job({2, 2});
  JobOptions options;
  options.wrap_store = [&](std::unique_ptr<Store> store, int rank) -> std::unique_ptr<Store> {
    SpyStore::OnMesh die;
    if (rank == 3) {
      die = [&](std::vector<std::string>& values) {
        values.pop_back();  // this rank gives up here
        job.hub().notify_all("rank 3 was killed by signal 9 (SIGKILL)");
      };
    }
    return std::make_unique<SpyStore>(std::move(store), die);
  };
  const auto errors = job.run(options, do_one_allreduce);
  for (const int rank : {0, 1, 2}) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::kLostPeer);
    CHECK(mentions(error, "rank 3 was killed by signal 9"));
  }
}

TEST_CASE("ranks that disagree about the job refuse to join and say who says what") {
  ThreadJob job({2});
  JobOptions options;
  options.wrap_store = [](std::unique_ptr<Store> store, int) -> std::unique_ptr<Store> {
    return std::make_unique<SpyStore>(std::move(store), [](std::vector<std::string>& values) {
      MeshPeer peer = decode_mesh_peer(values[1], 1).value();
      peer.size = 7;
      values[1] = encode(peer);
    });
  };
  for (const auto& error : job.run(options, do_one_allreduce)) {
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::kMismatch);
    CHECK(mentions(error, "rank 1 is in a job of 7 ranks"));
  }
}

TEST_CASE("a rank that encrypts and one that does not refuse each other, and say which is which") {
  ThreadJob job({1, 1, 1});
  JobOptions options;
  options.is_sealed = [](int rank) { return rank != 1; };
  for (const auto& error : job.run(options, do_one_allreduce)) {
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::kMismatch);
    CHECK(mentions(error, "rank 0 has HVD_LINK_SECURITY=encrypt and rank 1 has not; it must be the same"));
  }
}

TEST_CASE("a map that cannot be is refused before anything is opened") {
  const auto hub = MemoryHub::create(2, make_secret(1)).value();
  MemoryStore store(hub, 0);
  LinesLog log;
  RankMap map = map_of({2}, 0);
  map.local_rank = 5;
  const auto mesh = Mesh::join(map, store, {}, log, test_deadline());
  REQUIRE_FALSE(mesh.ok());
  CHECK(mesh.error().code() == Code::kInvalid);
}

TEST_CASE("a congestion control that is not to be had ends the meeting, with its variable's name") {
  const auto hub = MemoryHub::create(2, make_secret(1)).value();
  std::vector<std::string> said(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      MemoryStore store(hub, rank);
      LinesLog log;
      MeshOptions options;
      options.node_address = "127.0.0.1";
      options.congestion = "nosuchthing";
      const auto mesh = Mesh::join(map_of({1, 1}, rank), store, options, log, test_deadline());
      REQUIRE_FALSE(mesh.ok());
      said[static_cast<std::size_t>(rank)] = mesh.error().message();
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  for (const std::string& message : said) {
    CHECK(message.find("HVD_TCP_CONGESTION is 'nosuchthing', ") != std::string::npos);
  }
}

TEST_CASE("a node without an address cannot be one of several") {
  const auto hub = MemoryHub::create(2, make_secret(1)).value();
  MemoryStore store(hub, 0);
  LinesLog log;
  const auto mesh = Mesh::join(map_of({1, 1}, 0), store, {}, log, test_deadline());
  REQUIRE_FALSE(mesh.ok());
  CHECK(mesh.error().code() == Code::kInvalid);
  CHECK(mesh.error().message().find("HVD_NODE_ADDRESS") != std::string::npos);
}

}  // namespace hvd::joining_test
