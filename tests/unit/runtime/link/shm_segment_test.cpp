#include "runtime/link/shm_segment.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/io/socket.h"
#include "tests/support/sanitizers.h"

namespace hvd::shm_segment_test {
namespace {

class Over final : public Interrupt {
 public:
  Result<void> check() override { return Error(Code::kLostPeer, "rank 9 died"); }
};

std::unique_ptr<ShmSegment> join_segment(const ShmSegment& leader, int local_rank) {
  return ShmSegment::attach(duplicate(leader.memory_fd()).value(), leader.local_size(), local_rank).value();
}

}  // namespace

TEST_CASE("what one rank writes to its slot another one sees, and slots do not overlap") {
  const auto leader = ShmSegment::create(3, 5000).value();
  const auto other = join_segment(*leader, 2);
  CHECK(leader->slot_bytes() == std::max<std::size_t>(kPageBytes, 8192));  // whole pages
  CHECK(other->slot_bytes() == std::max<std::size_t>(kPageBytes, 8192));
  for (int rank = 0; rank < 3; ++rank) {
    std::memset(leader->slot(rank), rank + 1, leader->slot_bytes());
  }
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(other->slot(rank)[0] == rank + 1);
    CHECK(other->slot(rank)[other->slot_bytes() - 1] == rank + 1);
  }
}

TEST_CASE("a barrier of threads that map the memory themselves keeps them in step") {
  static constexpr int kRanks = 4;
  static constexpr int kRounds = 300;
  const auto leader = ShmSegment::create(kRanks, 4096).value();
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      NoInterrupt never;
      const auto own = join_segment(*leader, rank);
      for (int round = 1; round <= kRounds; ++round) {
        ++arrived;
        early += own->barrier(never).ok() && arrived.load() >= round * kRanks ? 0 : 1;
        early += own->barrier(never).ok() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(early.load() == 0);
}

TEST_CASE("a rank that waits for one that never comes asks the interrupt and gives up with its cause") {
  const auto leader = ShmSegment::create(2, 4096).value();
  Over over;
  const auto waited = leader->barrier(over);
  REQUIRE_FALSE(waited.ok());
  CHECK(waited.error().message() == "rank 9 died");
}

TEST_CASE("a rank that leaves ends the barrier that waits for it") {
  const auto leader = ShmSegment::create(2, 4096).value();
  auto other = join_segment(*leader, 1);
  std::thread leaver([&] { other.reset(); });
  NoInterrupt never;
  const auto waited = leader->barrier(never);
  leaver.join();
  REQUIRE_FALSE(waited.ok());
  CHECK(waited.error().code() == Code::kLostPeer);
  CHECK(waited.error().message().find("local rank 1") != std::string::npos);
}

TEST_CASE("the memory passes through a socket, close-on-exec, and nothing else is taken for it") {
  const auto pair = make_socket_pair().value();
  const auto leader = ShmSegment::create(2, 4096).value();
  CHECK_FALSE(ShmSegment::receive_fd(pair.second.get()).value().is_open());  // nothing yet
  REQUIRE(ShmSegment::send_fd(pair.first.get(), leader->memory_fd()).ok());
  Fd received = ShmSegment::receive_fd(pair.second.get()).value();
  REQUIRE(received.is_open());
  const auto other = ShmSegment::attach(std::move(received), 2, 1);
  REQUIRE(other.ok());
  leader->slot(1)[7] = 42;
  CHECK(other.value()->slot(1)[7] == 42);
  REQUIRE(send_all(pair.first.get(), as_bytes("M"), Deadline::after(std::chrono::seconds(5))).ok());
  CHECK_FALSE(ShmSegment::receive_fd(pair.second.get()).ok());
}

TEST_CASE("the other end's end is an error when the memory is waited for") {
  auto pair = make_socket_pair().value();
  pair.first.reset();
  CHECK(ShmSegment::receive_fd(pair.second.get()).error().code() == Code::kProtocol);
}

TEST_CASE("a limit of files' sizes that is too low for the memory is named") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_DFL);  // it would end the process
  const rlimit low{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  const auto made = ShmSegment::create(2, 1U << 20U);
  CHECK(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code() == Code::kResource);
  CHECK(made.error().message().find("ulimit -f") != std::string::npos);
}

// A sanitizer has terabytes of addresses mapped, so it cannot live under such a limit.
TEST_CASE("there is no arena where the addresses that a process may have are too few for it" *
          doctest::skip(hvd::test::kHasAddressSanitizer || hvd::test::kHasThreadSanitizer)) {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit low{std::size_t{100} << 30U, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &low) == 0);
  const auto one = ShmSegment::create(1, 4096);
  const auto two = ShmSegment::create(2, 4096);
  CHECK(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(one.value()->arena_bytes() > 0);
  CHECK(two.value()->arena_bytes() == 0);
  CHECK(join_segment(*two.value(), 1)->arena_bytes() == 0);  // all ranks of the node have what the leader has
}

TEST_CASE("all parts lie on pages of this machine, whatever their size") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto is_on_page = [page](const std::uint8_t* at) { return reinterpret_cast<std::uintptr_t>(at) % page == 0; };
  CHECK(kPageBytes % page == 0);
  const auto leader = ShmSegment::create(3, 5000).value();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(is_on_page(leader->slot(rank)));
  }
  CHECK(is_on_page(leader->rounds()));
  REQUIRE(leader->arena_bytes() > 0);
  REQUIRE(leader->reserve(kPageBytes, kPageBytes).ok());
  CHECK(is_on_page(leader->arena(0)));
  leader->arena(0)[kPageBytes] = 1;
  leader->release(kPageBytes, kPageBytes);
  REQUIRE(leader->reserve(kPageBytes, kPageBytes).ok());
  CHECK(leader->arena(0)[kPageBytes] == 0);
}

TEST_CASE("memory that was handed out is its rank's alone when the rank has left") {
  auto leader = ShmSegment::create(2, 4096).value();
  const auto other = ShmSegment::attach(duplicate(leader->memory_fd()).value(), 2, 1).value();
  REQUIRE(leader->arena_bytes() > 0);
  REQUIRE(leader->reserve(kPageBytes, 2 * kPageBytes).ok());
  REQUIRE(other->reserve(0, kPageBytes).ok());
  std::uint8_t* kept = leader->arena(0) + kPageBytes;
  kept[0] = 1;
  kept[2 * kPageBytes - 1] = 2;
  leader.reset();
  other->arena(0)[kPageBytes] = 7;  // what a rank writes that has not heard of the end yet
  CHECK(kept[0] == 1);
  CHECK(kept[2 * kPageBytes - 1] == 2);
  kept[1] = 3;
  CHECK(other->arena(0)[kPageBytes + 1] == 0);
  CHECK(::munmap(kept, 2 * kPageBytes) == 0);
}

TEST_CASE("memory that is not such a segment is refused") {
  const auto leader = ShmSegment::create(2, 4096).value();
  CHECK_FALSE(ShmSegment::attach(duplicate(leader->memory_fd()).value(), 3, 1).ok());
  Fd unsealed(::memfd_create("x", MFD_CLOEXEC));
  REQUIRE(::ftruncate(unsealed.get(), 1 << 20) == 0);
  CHECK_FALSE(ShmSegment::attach(std::move(unsealed), 2, 1).ok());
  Pipe pipe = make_pipe().value();
  CHECK_FALSE(ShmSegment::attach(std::move(pipe.read_end), 2, 1).ok());
  CHECK_FALSE(ShmSegment::create(0, 4096).ok());
  CHECK_FALSE(ShmSegment::create(2, 0).ok());
}

}  // namespace hvd::shm_segment_test
