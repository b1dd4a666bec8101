#include "runtime/link/shm_rounds.h"

#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::shm_rounds_test {
namespace {

constexpr std::size_t kLine = 64;

struct Memory {
  explicit Memory(int ranks)
      : bytes(ShmRounds::bytes_for(ranks)), at(new (std::align_val_t(kLine)) std::uint8_t[bytes]) {
    std::memset(at, 0, bytes);
  }
  ~Memory() { ::operator delete[](at, std::align_val_t(kLine)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::size_t bytes;
  std::uint8_t* at;
};

constexpr Duration kForever = std::chrono::minutes(5);

}  // namespace

TEST_CASE("what all have posted in a round all can read, round after round") {
  for (const int ranks : {1, 2, 3, 5}) {
    Memory memory(ranks);
    std::vector<std::thread> threads;
    std::vector<int> wrong(static_cast<std::size_t>(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        ShmRounds rounds(memory.at, ranks, rank);
        for (int round = 0; round < 500; ++round) {
          std::uint8_t* box = rounds.open();
          while (box == nullptr) {  // another one still reads
            std::this_thread::yield();
            box = rounds.open();
          }
          const int says = rank * 1000 + round;
          std::memcpy(box, &says, sizeof says);
          if (!rounds.post(0, kForever)) {
            ++wrong[static_cast<std::size_t>(rank)];
            return;
          }
          for (int other = 0; other < ranks; ++other) {
            int said = 0;
            std::memcpy(&said, rounds.box(other), sizeof said);
            wrong[static_cast<std::size_t>(rank)] += said == other * 1000 + round ? 0 : 1;
          }
          rounds.pass();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(wrong == std::vector<int>(static_cast<std::size_t>(ranks), 0));
  }
}

TEST_CASE("a round is full for all or void for all, whenever each gives up") {
  static constexpr int kRanks = 3;
  static constexpr int kTries = 3000;
  Memory memory(kRanks);
  // What each rank saw: the messages of the rounds that it found full, in order.
  std::vector<std::vector<int>> full(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ShmRounds rounds(memory.at, kRanks, rank);
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int i = 0; i < kTries; ++i) {
        std::uint8_t* box = rounds.open();
        if (box == nullptr) {
          std::this_thread::yield();
          continue;
        }
        std::memcpy(box, &i, sizeof i);
        if (rounds.post(static_cast<int>(random() % 200), std::chrono::microseconds(random() % 4))) {
          for (int other = 0; other < kRanks; ++other) {
            int said = 0;
            std::memcpy(&said, rounds.box(other), sizeof said);
            full[static_cast<std::size_t>(rank)].push_back(said);
          }
          rounds.pass();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(full[0] == full[1]);
  CHECK(full[0] == full[2]);
}

// It is asked now and then, and not at each look, because the answer takes a lock.
TEST_CASE("a promised post is waited for until the job is over, which is asked for seldom") {
  Memory memory(2);
  ShmRounds waiting(memory.at, 2, 0);
  REQUIRE(waiting.open() != nullptr);
  int asked = 0;
  const TimePoint began = SteadyClock().now();
  CHECK(!waiting.post_promised(0, [&asked] { return ++asked == 4; }));
  CHECK(SteadyClock().now() - began >= std::chrono::milliseconds(300));
  ShmRounds late(memory.at, 2, 1);
  REQUIRE(late.open() != nullptr);  // of the round after the void one
  REQUIRE(waiting.open() != nullptr);
  std::thread other([&] { CHECK(late.post_promised(0, [] { return false; })); });
  CHECK(waiting.post_promised(0, [] { return false; }));
  other.join();
}

TEST_CASE("a rank that stays away stops the others after some rounds, and finds them again when it comes") {
  Memory memory(2);
  ShmRounds here(memory.at, 2, 0);
  ShmRounds late(memory.at, 2, 1);
  std::size_t voids = 0;
  while (here.open() != nullptr) {
    CHECK_FALSE(here.post(3, Duration::zero()));
    REQUIRE(++voids <= ShmRounds::kRounds);
  }
  CHECK(voids == ShmRounds::kRounds);
  REQUIRE(late.open() != nullptr);  // past all that are void
  std::thread other([&] { CHECK(late.post(0, kForever)); });
  std::uint8_t* box = here.open();
  REQUIRE(box != nullptr);
  CHECK(here.post(0, kForever));
  other.join();
}

}  // namespace hvd::shm_rounds_test
