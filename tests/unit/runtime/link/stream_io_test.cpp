#include "runtime/link/stream_io.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/fd.h"
#include "runtime/io/socket.h"

namespace hvd::stream_io_test {
namespace {

class Counting final : public Interrupt {
 public:
  explicit Counting(int checks_until_over = 1'000'000) : left_(checks_until_over) {}
  Result<void> check() override {
    ++checks_;
    return --left_ > 0 ? Result<void>() : Error(Code::kCancelled, "enough");
  }
  [[nodiscard]] int checks() const { return checks_; }

 private:
  int left_;
  int checks_ = 0;
};

struct Ends {
  StreamPeer a;
  StreamPeer b;
  std::pair<Fd, Fd> fds;
  std::unique_ptr<std::array<LinkCounts, 2>> counts = std::make_unique<std::array<LinkCounts, 2>>();
};
Ends make_ends() {
  Ends ends;
  ends.fds = make_socket_pair().value();
  REQUIRE(set_nonblocking(ends.fds.first.get()).ok());
  REQUIRE(set_nonblocking(ends.fds.second.get()).ok());
  ends.a = StreamPeer{ends.fds.first.get(), "node 1 (rank 4)", &(*ends.counts)[0], "rank 0"};
  ends.b = StreamPeer{ends.fds.second.get(), "node 0 (rank 0)", &(*ends.counts)[1], "rank 4"};
  return ends;
}

thread_local Looks looks(0);

// How often this thread has gone to sleep: one that spins does not.
long sleeps_of_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

}  // namespace

TEST_CASE("both ends send far more than the buffers hold at once, over one connection") {
  const Ends ends = make_ends();
  const std::vector<std::uint8_t> from_a(8U << 20U, 1);
  const std::vector<std::uint8_t> from_b(5U << 20U, 2);
  std::vector<std::uint8_t> at_a(from_b.size());
  std::vector<std::uint8_t> at_b(from_a.size());
  std::thread other([&] {
    Counting interrupt;
    CHECK(send_and_recv(ends.b, from_b, ends.b, at_b, looks, interrupt).ok());
  });
  Counting interrupt;
  CHECK(send_and_recv(ends.a, from_a, ends.a, at_a, looks, interrupt).ok());
  other.join();
  CHECK(at_b == from_a);
  CHECK(at_a == from_b);
}

TEST_CASE("nothing to send and nothing to receive is done at once") {
  Counting interrupt(1);
  CHECK(send_and_recv({}, {}, {}, {}, looks, interrupt).ok());
  CHECK(interrupt.checks() == 0);
}

TEST_CASE("the end of a connection is a lost peer that is named") {
  Ends ends = make_ends();
  ends.fds.second.reset();
  std::uint8_t byte = 0;
  Counting interrupt;
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&byte, 1), looks, interrupt);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().code() == Code::kLostPeer);
  CHECK(received.error().message().find("node 1 (rank 4)") != std::string::npos);
  const auto sent = send_and_recv(ends.a, Bytes(&byte, 1), ends.a, {}, looks, interrupt);
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code() == Code::kLostPeer);
}

TEST_CASE("a connection that ends because the job is over tells the job's cause") {
  Ends ends = make_ends();
  ends.fds.second.reset();
  std::uint8_t byte = 0;
  Counting over(1);
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&byte, 1), looks, over);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().message() == "enough");
}

TEST_CASE("a wait asks the interrupt about each 100 ms, ends with its cause, and does not spin") {
  const Ends ends = make_ends();
  std::uint8_t byte = 0;
  Counting interrupt(3);
  const long sleeps_before = sleeps_of_thread();
  const auto began = std::chrono::steady_clock::now();
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&byte, 1), looks, interrupt);
  const auto took = std::chrono::steady_clock::now() - began;
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().code() == Code::kCancelled);
  CHECK(interrupt.checks() == 3);
  CHECK(took >= std::chrono::milliseconds(290));
  CHECK(sleeps_of_thread() - sleeps_before >= 3);
}

TEST_CASE("a full buffer that nobody empties does not spin either") {
  const Ends ends = make_ends();
  const std::vector<std::uint8_t> much(8U << 20U, 1);
  Counting interrupt(3);
  const auto sent = send_and_recv(ends.a, much, ends.a, {}, looks, interrupt);
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code() == Code::kCancelled);
}

TEST_CASE("a wait looks so often and then sleeps; long sleeps leave few looks, a short one brings them back") {
  Looks some(4);
  CHECK(some.has_more(4));
  CHECK_FALSE(some.has_more(5));
  some.note_sleep(std::chrono::milliseconds(1));
  CHECK(some.has_more(2));
  CHECK_FALSE(some.has_more(3));
  for (int i = 0; i < 3; ++i) {
    some.note_sleep(std::chrono::milliseconds(1));
  }
  CHECK_FALSE(some.has_more(1));
  some.note_sleep(std::chrono::microseconds(1));
  CHECK(some.has_more(4));
  Looks none(0);
  none.note_sleep(std::chrono::microseconds(1));
  CHECK_FALSE(none.has_more(1));
}

TEST_CASE("who looks sees what comes, and sleeps where nothing does") {
  const Ends ends = make_ends();
  std::uint8_t byte = 7;
  Looks many(1'000'000);
  std::thread other([&] {
    std::uint8_t echo = 0;
    Counting interrupt;
    CHECK(send_and_recv(ends.b, {}, ends.b, MutableBytes(&echo, 1), looks, interrupt).ok());
    CHECK(send_and_recv(ends.b, Bytes(&echo, 1), ends.b, {}, looks, interrupt).ok());
  });
  std::uint8_t back = 0;
  Counting interrupt;
  CHECK(send_and_recv(ends.a, Bytes(&byte, 1), ends.a, MutableBytes(&back, 1), many, interrupt).ok());
  CHECK(back == 7);
  other.join();
  Looks few(3);
  Counting soon(2);
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&back, 1), few, soon);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().code() == Code::kCancelled);
}

TEST_CASE("one that never has to wait asks the interrupt too") {
  // Whatever it sends is there again at once.
  class Endless final : public Flow {
   public:
    [[nodiscard]] std::uint64_t bytes_to_send() const override { return std::uint64_t{1} << 62U; }
    [[nodiscard]] std::uint64_t bytes_to_receive() const override { return bytes_to_send(); }
    std::size_t to_send(iovec* parts) override {
      *parts = iovec{data_.data(), data_.size()};
      return 1;
    }
    void note_sent(std::size_t) override {}
    std::size_t to_receive(iovec* parts) override { return to_send(parts); }
    void note_received(std::size_t) override {}

   private:
    std::vector<std::uint8_t> data_ = std::vector<std::uint8_t>(1U << 10U);
  };
  const Ends ends = make_ends();
  std::atomic<bool> is_over = false;
  class UntilOver final : public Interrupt {
   public:
    explicit UntilOver(const std::atomic<bool>& flag) : flag_(flag) {}
    Result<void> check() override { return flag_ ? Result<void>(Error(Code::kCancelled, "over")) : Result<void>(); }

   private:
    const std::atomic<bool>& flag_;
  };
  std::thread other([&] {
    Endless flow;
    UntilOver interrupt(is_over);
    static_cast<void>(move(ends.b, ends.b, flow, looks, interrupt));
  });
  Endless flow;
  Looks many(1'000'000);
  Counting interrupt(3);
  const auto moved = move(ends.a, ends.a, flow, many, interrupt);
  is_over = true;
  other.join();
  REQUIRE_FALSE(moved.ok());
  CHECK(moved.error().code() == Code::kCancelled);
}

namespace {

// What one end sends in these operations, as it is on the wire.
std::string wire_of(const std::vector<std::vector<std::uint8_t>>& operations) {
  Ends ends = make_ends();
  std::thread sender([&] {
    for (const auto& out : operations) {
      Counting interrupt;
      CHECK(send_and_recv(ends.a, out, ends.a, {}, looks, interrupt).ok());
    }
    ends.fds.first.reset();
  });
  std::string wire;
  std::array<char, 1U << 16U> buffer{};
  for (ssize_t got = -1; got != 0;) {
    pollfd ready{ends.fds.second.get(), POLLIN, 0};
    ::poll(&ready, 1, -1);  // the sender's end ends it
    got = ::recv(ends.fds.second.get(), buffer.data(), buffer.size(), 0);
    wire.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  sender.join();
  return wire;
}

// An end that has `wire` to read, and then nothing more.
Ends with_wire(std::string_view wire) {
  Ends ends = make_ends();
  REQUIRE(send_all(ends.fds.second.get(), as_bytes(wire), Deadline::after(std::chrono::minutes(5))).ok());
  return ends;
}

}  // namespace

TEST_CASE("bytes that are put into a stream, or taken out, are an error that names both ends, in that very operation") {
  const std::string wire = wire_of({std::vector<std::uint8_t>(1000, 7)});
  REQUIRE(wire.size() == 1000 + 2 * LinkSteps::kMarkBytes);
  const std::string more(64, 'i');
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{5}, LinkSteps::kMarkBytes, std::size_t{500}, wire.size() - 1}) {
    for (const bool is_more : {true, false}) {
      CAPTURE(at);
      std::string spoiled = wire;
      is_more ? spoiled.insert(at, more) : spoiled.erase(std::min(at, wire.size() - 64), 64);
      Ends ends = with_wire(spoiled + std::string(64, 'z'));
      std::vector<std::uint8_t> in(1000);
      Counting interrupt;
      const auto received = send_and_recv(ends.a, {}, ends.a, in, looks, interrupt);
      REQUIRE_FALSE(received.ok());
      CHECK(received.error().code() == Code::kProtocol);
      CHECK(received.error().message().find("the connection from node 1 (rank 4) to rank 0 is out of step: ") == 0);
    }
  }
}

TEST_CASE("an operation that is repeated, left out, or of another size is told as what has come") {
  const std::vector<std::uint8_t> small(10, 1);
  const std::string first = wire_of({small});
  const std::string two = wire_of({small, small});
  REQUIRE(two.size() == 2 * first.size());
  struct Row {
    std::string wire;
    std::size_t size;
    const char* words;
  };
  for (const Row& row :
       {Row{first + first, 10,
            "frame 2 (10 bytes) of operation 1 was to come, and frame 0 (10 bytes) of operation 0 has"},
        Row{two.substr(first.size()) + two, 10,
            "frame 0 (10 bytes) of operation 0 was to come, and frame 2 (10 bytes) of operation 1 has"},
        Row{first + first, 12,
            "frame 0 (12 bytes) of operation 0 was to come, and frame 0 (10 bytes) of operation 0 has"}}) {
    CAPTURE(std::string(row.words));
    Ends ends = with_wire(row.wire);
    std::vector<std::uint8_t> in(row.size);
    Counting interrupt;
    auto received = send_and_recv(ends.a, {}, ends.a, in, looks, interrupt);
    if (received.ok()) {
      received = send_and_recv(ends.a, {}, ends.a, in, looks, interrupt);
    }
    REQUIRE_FALSE(received.ok());
    CHECK(received.error().message().find(row.words) != std::string::npos);
  }
}

TEST_CASE("a mark that somebody between has changed in any field is an error that names the link") {
  const std::string wire = wire_of({std::vector<std::uint8_t>(1000, 7)});
  const std::size_t mark = LinkSteps::kMarkBytes;
  for (const std::size_t at : {std::size_t{0}, mark + 1000}) {
    for (std::size_t field = 0; field < mark; field += sizeof(std::uint32_t)) {
      for (const std::uint32_t forged : {0U, 1U, 999U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
        std::string spoiled = wire;
        std::memcpy(spoiled.data() + at + field, &forged, sizeof forged);
        if (spoiled == wire) {
          continue;
        }
        CAPTURE(at);
        CAPTURE(field);
        CAPTURE(forged);
        // The connection stays open and has no more to give: a forged length must not be waited for.
        Ends ends = with_wire(spoiled);
        std::vector<std::uint8_t> in(1000);
        Counting interrupt;
        const auto received = send_and_recv(ends.a, {}, ends.a, in, looks, interrupt);
        REQUIRE_FALSE(received.ok());
        CHECK(received.error().code() == Code::kProtocol);
        CHECK(received.error().message().find("the connection from node 1 (rank 4) to rank 0 is out of step: ") == 0);
      }
    }
  }
}

TEST_CASE("two frames of an operation, or two operations, that somebody between has swapped are an error") {
  const std::size_t frame = LinkSteps::kMarkBytes + LinkSteps::kFrameBytes;
  const auto receives = [](const std::string& wire, const std::vector<std::size_t>& sizes) {
    Ends ends = make_ends();
    std::thread between([&] {
      // Ends early where the receiver does.
      static_cast<void>(send_all(ends.fds.second.get(), as_bytes(wire), Deadline::after(std::chrono::minutes(5))));
    });
    Result<void> received;
    for (const std::size_t size : sizes) {
      std::vector<std::uint8_t> in(size);
      Counting interrupt;
      received = received.ok() ? send_and_recv(ends.a, {}, ends.a, in, looks, interrupt) : received;
    }
    ends.fds.first.reset();
    between.join();
    return received;
  };
  const std::string large = wire_of({std::vector<std::uint8_t>(3 * LinkSteps::kFrameBytes, 7)});
  REQUIRE(large.size() == 3 * frame + LinkSteps::kMarkBytes);
  const std::string two = wire_of({std::vector<std::uint8_t>(10, 1), std::vector<std::uint8_t>(10, 2)});
  CHECK(receives(large, {3 * LinkSteps::kFrameBytes}).ok());
  CHECK(receives(two, {10, 10}).ok());
  const std::string frames_swapped =
      large.substr(0, frame) + large.substr(2 * frame, frame) + large.substr(frame, frame) + large.substr(3 * frame);
  const auto first = receives(frames_swapped, {3 * LinkSteps::kFrameBytes});
  REQUIRE_FALSE(first.ok());
  CHECK(first.error().message() ==
        "the connection from node 1 (rank 4) to rank 0 is out of step: frame 1 (1048576 bytes) of operation 0 was to "
        "come, and frame 2 (1048576 bytes) of operation 0 has; the ranks do not agree on a size, or something else has "
        "written into it");
  const auto second = receives(two.substr(two.size() / 2) + two.substr(0, two.size() / 2), {10, 10});
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().message().find("frame 0 (10 bytes) of operation 0 was to come, and frame 2 (10 bytes) of "
                                      "operation 1 has") != std::string::npos);
}

TEST_CASE("operations of every size around a frame's come through, in both directions, one after the other") {
  const Ends ends = make_ends();
  const std::size_t frame = LinkSteps::kFrameBytes;
  const std::vector<std::size_t> sizes = {1, 15, 16, 17, frame - 1, frame, frame + 1, 2 * frame, 3 * frame + 5, 1};
  const auto filled = [](std::size_t size, std::uint8_t salt) {
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + salt);
    }
    return bytes;
  };
  std::thread other([&] {
    Counting interrupt;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<std::uint8_t> in(sizes[i]);
      CHECK(send_and_recv(ends.b, filled(sizes[sizes.size() - 1 - i], 2), ends.b, in, looks, interrupt).ok());
      CHECK(in == filled(sizes[i], 1));
    }
  });
  Counting interrupt;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::uint8_t> in(sizes[sizes.size() - 1 - i]);
    CHECK(send_and_recv(ends.a, filled(sizes[i], 1), ends.a, in, looks, interrupt).ok());
    CHECK(in == filled(in.size(), 2));
  }
  other.join();
}

}  // namespace hvd::stream_io_test
