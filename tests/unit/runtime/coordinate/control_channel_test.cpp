#include "runtime/coordinate/control_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/controller/message.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/record.h"

namespace hvd::control_channel_test {
namespace {

const SteadyClock kClock;
const RecordKeys kOurKeys = {{{1}, {1}}, {{2}, {2}}};
const RecordKeys kTheirKeys = {kOurKeys.receiving, kOurKeys.sending};

// A channel to peers whose other ends the test holds.
struct Bench {
  std::unique_ptr<EventLoop> loop = EventLoop::create(kClock).value();
  std::vector<Fd> ours;
  std::vector<Fd> theirs;
  std::vector<std::string> news;  // "1: frame 4 'body'", "2: end protocol"
  std::string last_words;         // of an end
  std::unique_ptr<ControlChannel> channel;

  std::vector<std::unique_ptr<ByteFilter>> filters;

  explicit Bench(int peer_count, bool is_sealed = false) {
    std::vector<ControlChannel::Peer> peers;
    for (int i = 0; i < peer_count; ++i) {
      auto pair = make_socket_pair().value();
      REQUIRE(set_nonblocking(pair.first.get()).ok());
      REQUIRE(set_nonblocking(pair.second.get()).ok());
      filters.push_back(is_sealed ? make_record_filter(kOurKeys) : nullptr);
      peers.push_back({i + 1, pair.first.get(), std::nullopt, filters.back().get()});
      ours.push_back(std::move(pair.first));
      theirs.push_back(std::move(pair.second));
    }
    ControlChannel::Handlers handlers;
    handlers.on_frame = [this](int rank, const Frame& frame) {
      news.push_back(std::to_string(rank) + ": frame " + std::to_string(frame.type) + " '" + frame.body + "'");
    };
    handlers.on_end = [this](int rank, const Error& why) {
      news.push_back(std::to_string(rank) + ": end " + (why.code() == Code::kProtocol ? "protocol" : "lost"));
      last_words = why.message();
    };
    channel = ControlChannel::create(*loop, peers, std::nullopt, std::move(handlers)).value();
  }

  void turn() { REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(1))).ok()); }
  void peer_says(std::size_t at, std::string_view bytes) {
    REQUIRE(send_all(theirs[at].get(), as_bytes(bytes), Deadline::after(std::chrono::seconds(5))).ok());
  }
  // Everything that has arrived at a peer.
  std::string heard(std::size_t at) {
    std::string all;
    std::array<char, 65536> buffer{};
    for (;;) {
      const ssize_t got = ::recv(theirs[at].get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got <= 0) {
        return all;
      }
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
};

// Two ranks of one node: both ends of a lane, and who has been woken.
struct Lanes {
  struct Rank {
    Fd socket;
    std::unique_ptr<EventLoop> loop = EventLoop::create(kClock).value();
    std::size_t bytes = 0;
    std::vector<std::string> ends;
    std::unique_ptr<ControlChannel> channel;

    // As the engine does: looks at the rings, and where nothing is there sleeps until it is woken.
    void turn() {
      channel->poll();
      const bool may_sleep = channel->sleep() && !channel->is_finished();
      const auto late = Deadline::after(std::chrono::seconds(may_sleep ? 300 : 0));
      REQUIRE(loop->turn(late).ok());
      channel->stay_awake();
    }
  };
  alignas(kCacheLineBytes) std::uint8_t rings[2][ShmRing::kBytes] = {};
  alignas(kCacheLineBytes) std::uint8_t bells[2][kCacheLineBytes] = {};
  Rank ranks[2];

  Lanes() {
    auto pair = make_socket_pair().value();
    ranks[0].socket = std::move(pair.first);
    ranks[1].socket = std::move(pair.second);
    for (std::size_t i = 0; i < 2; ++i) {
      REQUIRE(set_nonblocking(ranks[i].socket.get()).ok());
      const ControlChannel::Lane lane{ShmRing(rings[1 - i]), ShmRing(rings[i]), ShmBell(bells[1 - i])};
      ControlChannel::Handlers handlers;
      handlers.on_frame = [rank = &ranks[i]](int, const Frame& frame) { rank->bytes += frame.body.size(); };
      handlers.on_end = [rank = &ranks[i]](int, const Error& why) { rank->ends.push_back(why.message()); };
      ranks[i].channel =
          ControlChannel::create(*ranks[i].loop, {{static_cast<int>(1 - i), ranks[i].socket.get(), lane}},
                                 ShmBell(bells[i]), std::move(handlers))
              .value();
    }
  }
};

std::string frame(std::uint16_t type, std::string_view body) {
  return make_frame(control_wire::kSpec, type, body);
}

}  // namespace

TEST_CASE("frames arrive whole however they are cut, with the rank they came from") {
  Bench bench(2);
  const std::string two = frame(4, "hello") + frame(5, "");
  for (const char c : two) {
    bench.peer_says(1, std::string_view(&c, 1));
    bench.turn();
  }
  bench.peer_says(0, two);
  bench.turn();
  CHECK(bench.news ==
        std::vector<std::string>{"2: frame 4 'hello'", "2: frame 5 ''", "1: frame 4 'hello'", "1: frame 5 ''"});
}

TEST_CASE("repeated frames do not pile up for a peer that takes nothing") {
  Bench bench(3);
  const std::string large = frame(4, std::string(60'000, 'x'));
  std::size_t taken = 0;
  std::size_t sent = 0;
  while ((sent = bench.channel->send_to_idle({2}, large)) == 1) {
    ++taken;
    REQUIRE(taken < 10'000);
  }
  CHECK(sent == 0);
  CHECK(bench.channel->send_to_idle({1, 2}, large) == 1);  // only the other one
  CHECK(bench.heard(0).size() == large.size());
  CHECK(bench.heard(2).empty());
  std::size_t heard = 0;
  for (std::size_t news = 1; news > 0; heard += news) {  // the system's, and then what has waited
    news = bench.heard(1).size();
    bench.turn();
  }
  CHECK(heard == taken * large.size());
  CHECK(bench.channel->send_to_idle({2}, large) == 1);
}

TEST_CASE("frames of an encrypted link arrive whole, and are not to be read on the wire") {
  Bench bench(1, true);
  const auto peer = make_record_filter(kTheirKeys);
  std::string wire;
  REQUIRE(peer->seal(frame(4, "a tensor's name") + frame(5, std::string(200'000, 'x')), wire).ok());
  CHECK(wire.find("tensor") == std::string::npos);
  for (std::size_t at = 0; at < wire.size(); at += 777) {
    bench.peer_says(0, std::string_view(wire).substr(at, 777));
    bench.turn();
  }
  REQUIRE(bench.news.size() == 2);
  CHECK(bench.news[0] == "1: frame 4 'a tensor's name'");
  bench.channel->send(frame(6, "the answer"));
  bench.channel->send(frame(7, ""));
  const std::string heard = bench.heard(0);
  CHECK(heard.find("answer") == std::string::npos);
  peer->feed(as_bytes(heard));
  std::string text;
  while (const auto next = peer->next().value()) {
    text += as_text(*next);
  }
  CHECK(text == frame(6, "the answer") + frame(7, ""));
}

TEST_CASE("a changed byte on an encrypted link ends it, and the link is named") {
  Bench bench(1, true);
  std::string wire;
  REQUIRE(make_record_filter(kTheirKeys)->seal(frame(4, "hello"), wire).ok());
  wire[9] = static_cast<char>(wire[9] ^ 1);
  bench.peer_says(0, wire);
  bench.turn();
  CHECK(bench.news == std::vector<std::string>{"1: end protocol"});
  CHECK(bench.last_words.find("the encrypted control connection between rank 0 and rank 1 was changed on its way") ==
        0);
}

TEST_CASE("garbage and an end of file each end their link once, and only theirs") {
  Bench bench(3);
  bench.peer_says(0, "GET / HTTP/1.1\r\n");
  bench.theirs[1].reset();
  for (int i = 0; i < 5; ++i) {
    bench.turn();
  }
  bench.peer_says(2, frame(1, "x"));
  bench.turn();
  std::sort(bench.news.begin(), bench.news.end());
  CHECK(bench.news == std::vector<std::string>{"1: end protocol", "2: end lost", "3: frame 1 'x'"});
  CHECK_FALSE(bench.channel->have_all_ended());
}

TEST_CASE("what a rank said before it was gone is heard first, even if writing to it failed meanwhile") {
  Bench bench(1);
  bench.peer_says(0, frame(5, "why"));
  bench.theirs[0].reset();
  bench.channel->send(frame(2, "unheard"));
  for (int i = 0; i < 3; ++i) {
    bench.turn();
  }
  CHECK(bench.news == std::vector<std::string>{"1: frame 5 'why'", "1: end lost"});
  bench.channel->close_output();
  CHECK(bench.channel->is_finished());
}

TEST_CASE("a peer that does not read holds up nobody, and gets everything when it does") {
  Bench bench(2);
  const std::string big = frame(2, std::string(4U << 20U, 'b'));
  bench.channel->send(big);
  bench.channel->send(frame(3, "last"));
  bench.channel->close_output();
  std::string second;
  for (int i = 0; i < 10'000 && second.size() < big.size(); ++i) {
    second += bench.heard(1);
    bench.turn();
  }
  second += bench.heard(1);
  CHECK(second == big + frame(3, "last"));
  std::string first;
  for (int i = 0; i < 10'000 && first.size() < second.size(); ++i) {
    first += bench.heard(0);
    bench.turn();
  }
  CHECK(first == second);
  char byte = 0;
  CHECK(::recv(bench.theirs[0].get(), &byte, 1, 0) == 0);  // then its end of file
  CHECK_FALSE(bench.channel->is_finished());
  bench.theirs.clear();
  for (int i = 0; i < 3; ++i) {
    bench.turn();
  }
  CHECK(bench.channel->is_finished());
}

TEST_CASE("a link that has ended does not keep the loop awake") {
  Bench bench(1);
  bench.theirs[0].reset();
  bench.turn();
  const auto before = bench.loop->wakeups();
  REQUIRE(bench.loop->turn(Deadline::after(std::chrono::milliseconds(50))).ok());
  CHECK(bench.loop->wakeups() == before + 1);  // the deadline's
}

TEST_CASE("frames between ranks that are awake go through their rings and wake nobody") {
  Lanes lanes;
  for (int i = 0; i < 1000; ++i) {
    lanes.ranks[0].channel->send(frame(2, "12345"));
    CHECK(lanes.ranks[1].channel->poll());
    lanes.ranks[1].channel->send(frame(2, "1"));
    CHECK(lanes.ranks[0].channel->poll());
  }
  CHECK_FALSE(lanes.ranks[0].channel->poll());
  CHECK(lanes.ranks[1].bytes == 5000);
  CHECK(lanes.ranks[0].bytes == 1000);
  char byte = 0;
  CHECK(::recv(lanes.ranks[0].socket.get(), &byte, 1, MSG_DONTWAIT) < 0);
  CHECK(::recv(lanes.ranks[1].socket.get(), &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("ranks that sleep are woken for frames and for room, whatever the sizes") {
  Lanes lanes;
  static constexpr std::size_t kFrames = 200;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kFrames; ++i) {
    bytes += i * 1000;
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Lanes::Rank& rank = lanes.ranks[i];
      for (std::size_t n = 0; n < kFrames; ++n) {
        rank.channel->send(frame(2, std::string(n * 1000, 'x')));
        rank.channel->poll();
      }
      rank.channel->close_output();
      while (!rank.channel->is_finished()) {
        rank.turn();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(lanes.ranks[0].bytes == bytes);
  CHECK(lanes.ranks[1].bytes == bytes);
  CHECK(lanes.ranks[0].channel->is_finished());
}

TEST_CASE("what a rank of the same node wrote before it was gone is heard first, and nothing waits for it") {
  Lanes lanes;
  lanes.ranks[1].channel->send(frame(5, "why"));
  lanes.ranks[1].channel.reset();
  lanes.ranks[1].socket.reset();
  lanes.ranks[0].channel->send(frame(2, std::string(1U << 20U, 'x')));
  while (lanes.ranks[0].ends.empty()) {
    lanes.ranks[0].turn();
  }
  CHECK(lanes.ranks[0].bytes == 3);
  lanes.ranks[0].channel->close_output();
  CHECK(lanes.ranks[0].channel->is_finished());
}

}  // namespace hvd::control_channel_test
