#include "runtime/link/host_rounds.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::host_rounds_test {
namespace {

// The sum of one number of each node.
class Numbers final : public RoundData {
 public:
  explicit Numbers(std::uint64_t number) : number_(number) {}
  [[nodiscard]] std::size_t size_bytes() const override { return sizeof number_; }
  [[nodiscard]] Bytes own() const override { return {reinterpret_cast<const std::uint8_t*>(&number_), sizeof number_}; }
  bool take(Bytes theirs, bool, bool) override {
    std::uint64_t number = 0;
    std::memcpy(&number, theirs.data(), theirs.size());
    number_ += number;
    return true;
  }
  bool accept(Bytes result) override {
    number_ = 0;
    return take(result, false, true);
  }
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  std::uint64_t number_;
};

// What each node brings is the same.
class Blocks final : public RoundData {
 public:
  explicit Blocks(Bytes own) : own_(own) {}
  [[nodiscard]] std::size_t size_bytes() const override { return own_.size(); }
  [[nodiscard]] Bytes own() const override { return own_; }
  bool take(Bytes theirs, bool, bool) override {
    ++taken_;
    return std::equal(theirs.begin(), theirs.end(), own_.begin(), own_.end());
  }
  bool accept(Bytes result) override { return take(result, false, true); }
  [[nodiscard]] int taken() const { return taken_; }

 private:
  Bytes own_;
  int taken_ = 0;
};

// The waits of a job that is over, or will be.
class Over final : public RoundWaits {
 public:
  Over() = default;
  explicit Over(const std::atomic<bool>& is_over) : is_over_(&is_over) {}
  [[nodiscard]] bool is_over() const override { return is_over_ == nullptr || *is_over_; }
  void ask(std::uint64_t) override {}
  void note_sleep() override {}

 private:
  const std::atomic<bool>* is_over_ = nullptr;
};

std::size_t waiting_bytes(const Fd& fd) {
  std::array<char, 4096> bytes{};
  const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

std::pair<Fd, Fd> connected_pair(int room = 0) {
  int ends[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  for (const int end : ends) {
    REQUIRE((room == 0 || ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0));
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

// Nodes whose connections are socket pairs. A node that is asked for makes all others answer, as the engines do.
class Nodes {
 public:
  // So many calls for the answers of one round, ten a second, end the job: a round that hangs fails the test.
  static constexpr int kMostAsked = 600;

  // The system takes about `room` bytes for each connection; 0: as many as it likes.
  explicit Nodes(int count, int room = 0) {
    std::vector<std::vector<std::unique_ptr<HostLink>>> links(static_cast<std::size_t>(count));
    for (auto& of_node : links) {
      of_node.resize(static_cast<std::size_t>(count));
    }
    for (int node = 0; node < count; ++node) {
      for (const int partner : HostRounds::partners_of(node, count)) {
        if (partner < node) {
          continue;
        }
        auto [mine, theirs] = connected_pair(room);
        links[at(node)][at(partner)] = link(std::move(mine), partner, node);
        links[at(partner)][at(node)] = link(std::move(theirs), node, partner);
      }
    }
    for (int node = 0; node < count; ++node) {
      rounds_.push_back(std::make_unique<HostRounds>(std::move(links[at(node)]), node, Looks(8)));
    }
  }
  [[nodiscard]] HostRounds& of(int node) { return *rounds_[at(node)]; }
  [[nodiscard]] int count() const { return static_cast<int>(rounds_.size()); }
  [[nodiscard]] bool has_hung() const { return has_hung_; }

  // The node's next operation goes the ordinary way.
  void leave_out(int node) { ++numbers_[at(node)]; }
  void decline(int node) { CHECK(of(node).decline(numbers_[at(node)]++).ok()); }
  // Takes part in the next round with this head. Nothing: the node may not post now, as when another has asked before
  // this one came.
  std::optional<bool> run(int node, const std::string& head, Numbers& numbers) {
    const auto begun = of(node).begin(numbers_[at(node)]++);
    REQUIRE(begun.ok());
    if (!begun.value()) {
      return std::nullopt;
    }
    Waits waits(*this);
    const auto done = of(node).run(as_bytes(head), numbers, waits);
    if (!done.ok()) {
      errors_[at(node)] = done.error().message();
    }
    return done.ok() && done.value();
  }
  [[nodiscard]] const std::string& error(int node) const { return errors_[at(node)]; }

 private:
  class Waits final : public RoundWaits {
   public:
    explicit Waits(Nodes& nodes) : nodes_(nodes) {}
    [[nodiscard]] bool is_over() const override { return nodes_.has_hung_; }
    void ask(std::uint64_t round) override {
      nodes_.has_hung_ = nodes_.has_hung_ || ++asked_ > kMostAsked;
      for (int node = 0; node < nodes_.count(); ++node) {
        static_cast<void>(nodes_.of(node).answer(round, nodes_.numbers_[at(node)]));
      }
    }
    void note_sleep() override {}

   private:
    Nodes& nodes_;
    int asked_ = 0;
  };

  static std::size_t at(int node) { return static_cast<std::size_t>(node); }
  static std::unique_ptr<HostLink> link(Fd fd, int there, int here) {
    return std::make_unique<HostLink>(std::move(fd), nullptr,
                                      HostLink::Ends{"node " + std::to_string(there), "rank " + std::to_string(here)});
  }

  std::vector<std::unique_ptr<HostRounds>> rounds_;
  std::array<std::string, HostRounds::kMostNodes> errors_;
  std::array<std::atomic<std::uint64_t>, HostRounds::kMostNodes> numbers_{};  // of the next operation
  std::atomic<bool> has_hung_ = false;
};

void on_all(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int node = 0; node < count; ++node) {
    threads.emplace_back(body, node);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// All nodes but the last come to a round. None may find it done.
void run_without_last(Nodes& nodes) {
  on_all(nodes.count() - 1, [&](int node) {
    Numbers numbers(1);
    CHECK(nodes.run(node, "x", numbers) != true);
    CHECK(numbers.number() < static_cast<std::uint64_t>(nodes.count()));
  });
}

}  // namespace

TEST_CASE("nodes that post the same get the sum of all, for any number of nodes") {
  for (const int count : {2, 3, 4, 5, 7, 8, 16}) {
    Nodes nodes(count);
    std::atomic<int> done = 0;
    on_all(count, [&](int node) {
      for (std::uint64_t round = 0; round < 50 && !nodes.has_hung();) {
        Numbers numbers(std::uint64_t{1} << static_cast<unsigned>(node));
        const auto is_done = nodes.run(node, "round " + std::to_string(round), numbers);
        if (is_done == true) {
          done += numbers.number() == (std::uint64_t{1} << static_cast<unsigned>(count)) - 1 ? 1 : 0;
          ++round;
        }
      }
    });
    CHECK(done == 50 * count);
  }
}

// Each node keeps what became of each of its posts, by the round's number in the head: no two may differ.
TEST_CASE("no two nodes disagree about a round, whoever posts, declines, differs, sleeps or stays away") {
  for (const int count : {2, 3, 4, 6, 8}) {
    Nodes nodes(count);
    std::vector<std::vector<std::string>> finished(static_cast<std::size_t>(count));
    on_all(count, [&](int node) {
      std::mt19937 random(static_cast<unsigned>(node * 100 + count));
      for (int attempt = 0; attempt < 300; ++attempt) {
        const unsigned what = static_cast<unsigned>(random() % 100);
        if (what < 3) {
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 12));  // sleeps: comes late
        }
        if (what < 10) {
          nodes.decline(node);
          continue;
        }
        if (what < 13) {
          nodes.leave_out(node);
          continue;
        }
        // Which operation it is depends on what this node has finished; sometimes it comes with another one.
        std::vector<std::string>& own = finished[static_cast<std::size_t>(node)];
        const std::string head = std::to_string(own.size()) + (what < 18 ? " of " + std::to_string(node) : " of all");
        Numbers numbers(std::uint64_t{1} << static_cast<unsigned>(node));
        if (nodes.run(node, head, numbers) == true) {
          CHECK(numbers.number() == (std::uint64_t{1} << static_cast<unsigned>(count)) - 1);
          own.push_back(head);
        }
      }
      // Whoever still posts is answered.
    });
    for (int node = 1; node < count; ++node) {
      CHECK(finished[static_cast<std::size_t>(node)] == finished.front());
      CHECK(nodes.error(node) == "");
    }
    CHECK(!finished.front().empty());
  }
}

TEST_CASE("a node whose rank is absent declines when it is asked, and is told of it") {
  Nodes nodes(3);
  run_without_last(nodes);
  Numbers late(4);
  CHECK(nodes.run(2, "x", late) == std::nullopt);  // its operation has taken the ordinary way already
  std::atomic<int> done = 0;
  on_all(3, [&](int node) {
    for (bool is_done = false; !is_done && !nodes.has_hung();) {  // a busy machine makes some come late
      Numbers again(1);
      is_done = nodes.run(node, "y", again) == true;
      done += is_done && again.number() == 3 ? 1 : 0;
    }
  });
  CHECK(done == 3);
}

TEST_CASE("an engine's decline is about one operation, also if that never comes to a round") {
  Nodes nodes(3);
  run_without_last(nodes);
  nodes.leave_out(2);
  Numbers next(4);
  CHECK(nodes.run(2, "y", next) == false);  // it may post, and is declined since the others are not there
}

TEST_CASE("a decline for which a connection has no room is sent when there is some") {
  Nodes nodes(2, 1);
  for (int round = 0; round < 1000; ++round) {
    nodes.decline(0);  // the first ones fill the connection, the others are sent as one
  }
  for (int attempt = 0; attempt < 50; ++attempt) {
    Numbers numbers(1);
    CHECK(nodes.run(1, "x", numbers) != true);  // in the end its own posts have filled the connection
  }
  CHECK(!nodes.has_hung());
  CHECK(nodes.error(1) == "");
}

TEST_CASE("no two nodes disagree where connections have little room") {
  static constexpr int kCount = 5;
  Nodes nodes(kCount, 1);
  std::array<std::vector<std::string>, kCount> finished;
  on_all(kCount, [&](int node) {
    std::mt19937 random(static_cast<unsigned>(node));
    for (int attempt = 0; attempt < 300; ++attempt) {
      if (random() % 10 == 0) {
        for (int round = 0; round < 200; ++round) {
          nodes.decline(node);
        }
        continue;
      }
      auto& own = finished[static_cast<std::size_t>(node)];
      const std::string head = std::to_string(own.size());
      Numbers numbers(1);
      if (nodes.run(node, head, numbers) == true) {
        CHECK(numbers.number() == kCount);
        own.push_back(head);
      }
    }
  });
  CHECK(!nodes.has_hung());
  for (int node = 1; node < kCount; ++node) {
    CHECK(finished[static_cast<std::size_t>(node)] == finished.front());
    CHECK(nodes.error(node) == "");
  }
}

TEST_CASE("a node that was away for many rounds catches up in one") {
  Nodes nodes(2);
  for (int round = 0; round < 1000; ++round) {
    nodes.decline(0);
  }
  Numbers behind(1);
  CHECK(nodes.run(1, "x", behind) == false);
  std::atomic<int> attempts = 0;
  on_all(2, [&](int node) {
    while (!nodes.has_hung()) {
      ++attempts;
      Numbers numbers(1);
      if (nodes.run(node, "y", numbers) == true) {
        return;
      }
    }
  });
  CHECK(attempts < 900);  // one by one it would be 1000; a busy machine makes some come late
}

TEST_CASE("the end of the job, and of the set, end a wait that nobody answers") {
  for (const bool is_retired : {true, false}) {
    auto [mine, silent] = connected_pair();
    std::vector<std::unique_ptr<HostLink>> links(2);
    links[1] = std::make_unique<HostLink>(std::move(mine), nullptr, HostLink::Ends{"node 1 (rank 1)", "rank 0"});
    HostRounds rounds(std::move(links), 0, Looks(0));
    struct Ends final : public RoundWaits {
      HostRounds& rounds;
      bool retires;
      int asked = 0;
      Ends(HostRounds& of, bool is_set_gone) : rounds(of), retires(is_set_gone) {}
      [[nodiscard]] bool is_over() const override { return !retires && asked > 0; }
      void ask(std::uint64_t) override {
        if (++asked == 1 && retires) {
          rounds.retire();
        }
      }
      void note_sleep() override {}
    } waits(rounds, is_retired);
    Numbers numbers(1);
    REQUIRE(rounds.begin(0).value());
    const auto done = rounds.run(as_bytes(std::string_view("x")), numbers, waits);
    CHECK((done.ok() && !done.value()));
    CHECK(waits.asked >= 1);
  }
}

// Answers are final, and a node that gives up knows none: it may not decline.
TEST_CASE("a node that gives up says nothing more") {
  auto silent = connected_pair();
  auto waiting = connected_pair();
  std::vector<std::unique_ptr<HostLink>> links(4);
  links[1] = std::make_unique<HostLink>(std::move(silent.first), nullptr, HostLink::Ends{"node 1", "rank 0"});
  links[2] = std::make_unique<HostLink>(std::move(waiting.first), nullptr, HostLink::Ends{"node 2", "rank 0"});
  HostRounds rounds(std::move(links), 0, Looks(0));
  Over waits;
  Numbers numbers(1);
  REQUIRE(rounds.begin(0).value());
  const auto done = rounds.run(as_bytes(std::string_view("x")), numbers, waits);
  CHECK((done.ok() && !done.value()));
  CHECK(rounds.answer(7, 1).ok());
  CHECK(waiting_bytes(silent.second) == HostLink::length_of(1, sizeof(std::uint64_t)));
  CHECK(waiting_bytes(waiting.second) == 0);
  CHECK(!rounds.begin(1).value());
}

TEST_CASE("a round that is done stays so, though its result reaches the last node no more") {
  auto [mine, first] = connected_pair();
  auto [other, last] = connected_pair(1);
  const HostLink::Ends ends{"node", "rank"};
  HostLink peer(std::move(first), nullptr, ends);
  HostLink beyond(std::move(last), nullptr, ends);
  const std::vector<std::uint8_t> data(HostLink::kMostData, 1);
  Blocks blocks(data);
  std::vector<std::unique_ptr<HostLink>> links(3);
  links[1] = std::make_unique<HostLink>(std::move(mine), nullptr, ends);
  links[2] = std::make_unique<HostLink>(std::move(other), nullptr, ends);
  HostRounds rounds(std::move(links), 0, Looks(0));
  std::atomic<bool> is_sent = false;
  std::thread posts([&] {
    const Bytes head = as_bytes(std::string_view("x"));
    peer.post(0, head, data);
    beyond.post(0, head, data);
    while (!beyond.flush().value() || !peer.flush().value()) {
      std::this_thread::yield();
    }
    while (!peer.receive(0).value()) {
      std::this_thread::yield();
    }
    is_sent = true;
  });
  Over waits(is_sent);
  REQUIRE(rounds.begin(0).value());
  const auto done = rounds.run(as_bytes(std::string_view("x")), blocks, waits);
  posts.join();
  CHECK((done.ok() && done.value()));
  CHECK(blocks.taken() == 2);
  CHECK(!rounds.begin(1).value());
}

TEST_CASE("what no leader has sent, and a lost connection, are errors that name both ends") {
  const auto fails = [](const std::string& came, bool is_closed) {
    auto [mine, other] = connected_pair();
    HostLink link(std::move(mine), nullptr, {"node 1 (rank 4)", "rank 0"});
    REQUIRE(::send(other.get(), came.data(), came.size(), 0) == static_cast<ssize_t>(came.size()));
    if (is_closed) {
      other.reset();
    }
    const auto received = link.receive(HostLink::length_of(0, 0));
    return received.ok() ? std::string(received.value() ? "a message" : "nothing") : received.error().message();
  };
  // A whole decline of round 3, as the link sends it.
  const auto decline = [] {
    auto [mine, other] = connected_pair();
    HostLink link(std::move(mine), nullptr, {});
    link.decline(3);
    REQUIRE(link.flush().value());
    std::string sent(HostLink::length_of(0, 0), '\0');
    REQUIRE(::recv(other.get(), sent.data(), sent.size(), 0) == static_cast<ssize_t>(sent.size()));
    return sent;
  }();
  CHECK(fails(decline, false) == "a message");
  CHECK(fails(decline.substr(0, 40), false) == "nothing");
  CHECK(fails(decline.substr(0, 40), true).starts_with("lost the connection to node 1 (rank 4): "));
  const std::string wrong = "the connection from node 1 (rank 4) to rank 0 is out of step: message 0 was to come, and ";
  CHECK(fails(std::string(HostLink::length_of(0, 0), 'x'), false).starts_with(wrong + "what came is no message"));
  for (std::size_t byte = 0; byte < decline.size(); ++byte) {
    const bool is_padding = byte >= 32 && byte < 64;  // means nothing
    std::string changed = decline;
    changed[byte] = static_cast<char>(changed[byte] ^ 0x40);
    const std::string said = fails(changed, false);
    CHECK_MESSAGE((is_padding ? said == "a message" : said.starts_with(wrong)), byte << ": " << said);
  }
}

}  // namespace hvd::host_rounds_test
