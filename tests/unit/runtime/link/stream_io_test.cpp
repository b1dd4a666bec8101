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
    CHECK(send_and_recv(ends.b, from_b, ends.b, at_b, interrupt).ok());
  });
  Counting interrupt;
  CHECK(send_and_recv(ends.a, from_a, ends.a, at_a, interrupt).ok());
  other.join();
  CHECK(at_b == from_a);
  CHECK(at_a == from_b);
}

TEST_CASE("nothing to send and nothing to receive is done at once") {
  Counting interrupt(1);
  CHECK(send_and_recv({}, {}, {}, {}, interrupt).ok());
  CHECK(interrupt.checks() == 0);
}

TEST_CASE("the end of a connection is a lost peer that is named") {
  Ends ends = make_ends();
  ends.fds.second.reset();
  std::uint8_t byte = 0;
  Counting interrupt;
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&byte, 1), interrupt);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().code() == Code::kLostPeer);
  CHECK(received.error().message().find("node 1 (rank 4)") != std::string::npos);
  const auto sent = send_and_recv(ends.a, Bytes(&byte, 1), ends.a, {}, interrupt);
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code() == Code::kLostPeer);
}

TEST_CASE("a connection that ends because the job is over tells the job's cause") {
  Ends ends = make_ends();
  ends.fds.second.reset();
  std::uint8_t byte = 0;
  Counting over(1);
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&byte, 1), over);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().message() == "enough");
}

TEST_CASE("a wait asks the interrupt about each 100 ms, ends with its cause, and does not spin") {
  const Ends ends = make_ends();
  std::uint8_t byte = 0;
  Counting interrupt(3);
  const long sleeps_before = sleeps_of_thread();
  const auto began = std::chrono::steady_clock::now();
  const auto received = send_and_recv(ends.a, {}, ends.a, MutableBytes(&byte, 1), interrupt);
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
  const auto sent = send_and_recv(ends.a, much, ends.a, {}, interrupt);
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code() == Code::kCancelled);
}
