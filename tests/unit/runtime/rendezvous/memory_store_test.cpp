#include "runtime/rendezvous/memory_store.h"

#include <poll.h>

#include <thread>

#include <doctest/doctest.h>

#include "tests/support/ending_interrupt.h"

namespace hvd::memory_store_test {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(300));
}

bool is_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

}  // namespace

TEST_CASE("ranks as threads exchange values, key after key, and a key again") {
  static constexpr int kRanks = 4;
  const auto hub = MemoryHub::create(kRanks, {}).value();
  std::vector<int> right(kRanks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      MemoryStore store(hub, rank);
      for (int round = 0; round < 100; ++round) {
        const std::string mine = std::to_string(rank) + "/" + std::to_string(round);
        const auto all = store.exchange(round % 2 == 0 ? "even" : "odd", mine, soon());
        const bool is_right = all.ok() && all.value().size() == kRanks &&
                              all.value()[3] == "3/" + std::to_string(round) &&
                              all.value()[0] == "0/" + std::to_string(round);
        right[static_cast<std::size_t>(rank)] += is_right ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(right == std::vector<int>(kRanks, 100));
}

TEST_CASE("an exchange that times out names who is missing") {
  const auto hub = MemoryHub::create(3, {}).value();
  MemoryStore store(hub, 1);
  const auto all = store.exchange("k", "v", Deadline::after(std::chrono::milliseconds(5)));
  REQUIRE_FALSE(all.ok());
  CHECK(all.error().code() == Code::kTimeout);
  CHECK(all.error().message().find("rank 0, 2") != std::string::npos);
}

TEST_CASE("an exchange ends with the cause that its interrupt tells") {
  const auto hub = MemoryHub::create(2, {}).value();
  MemoryStore store(hub, 0);
  test::EndingInterrupt interrupt(3);
  CHECK(store.exchange_while("k", "v", soon(), interrupt).error().message() == "rank 9 died");
}

TEST_CASE("ranks that were stopped while their deadline passed still meet") {
  const auto hub = MemoryHub::create(2, {}).value();
  const auto exchange = [&](int rank) {
    MemoryStore store(hub, rank);
    return store.exchange("k", "v", Deadline::after(-std::chrono::hours(1))).ok();
  };
  bool is_there = false;
  std::thread other([&] { is_there = exchange(1); });
  CHECK(exchange(0));
  other.join();
  CHECK(is_there);
}

TEST_CASE("a notice ends an exchange that waits and every later one, and stays known") {
  const auto hub = MemoryHub::create(2, {}).value();
  MemoryStore store(hub, 0);
  CHECK_FALSE(is_readable(store.notice_fd()));
  CHECK_FALSE(store.poll_notice());
  std::thread killer([&] { hub->notify(0, "rank 1 died"); });
  const auto all = store.exchange("k", "v", soon());
  killer.join();
  REQUIRE_FALSE(all.ok());
  CHECK(all.error().code() == Code::kLostPeer);
  CHECK(all.error().message() == "rank 1 died");
  CHECK(is_readable(store.notice_fd()));
  CHECK(store.poll_notice()->cause == "rank 1 died");
  CHECK(store.poll_notice()->cause == "rank 1 died");
  CHECK_FALSE(is_readable(store.notice_fd()));
  CHECK_FALSE(store.exchange("other", "v", soon()).ok());
}

TEST_CASE("a notice to one rank is not told to another, one to all is") {
  const auto hub = MemoryHub::create(2, {}).value();
  MemoryStore a(hub, 0);
  MemoryStore b(hub, 1);
  hub->notify(0, "only a");
  CHECK(a.poll_notice());
  CHECK_FALSE(b.poll_notice());
  hub->notify_all("both");
  CHECK(a.poll_notice()->cause == "only a");  // the first cause stays
  CHECK(b.poll_notice()->cause == "both");
}

}  // namespace hvd::memory_store_test
