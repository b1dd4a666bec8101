#include "runtime/link/stream_io.h"

#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/fd.h"

using namespace hvd;

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
};
Ends make_ends() {
  Ends ends;
  ends.fds = make_socket_pair().value();
  REQUIRE(set_nonblocking(ends.fds.first.get()).ok());
  REQUIRE(set_nonblocking(ends.fds.second.get()).ok());
  ends.a = StreamPeer{ends.fds.first.get(), "node 1 (rank 4)"};
  ends.b = StreamPeer{ends.fds.second.get(), "node 0 (rank 0)"};
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
  std::thread other([&] {
    Endless flow;
    while (!is_over) {
      Counting interrupt(2);
      static_cast<void>(move(ends.b, ends.b, flow, looks, interrupt));
    }
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
