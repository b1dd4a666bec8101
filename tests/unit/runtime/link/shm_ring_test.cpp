#include "runtime/link/shm_ring.h"

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/machine.h"

namespace hvd::shm_ring_test {
namespace {

// Both ends of one ring.
struct Ends {
  alignas(kCacheLineBytes) std::uint8_t memory[ShmRing::kBytes] = {};
  ShmRing writer{memory};
  ShmRing reader{memory};
};

std::string read_some(ShmRing& ring) {
  const Bytes bytes = ring.readable().value();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ring.consume(bytes.size());
  return text;
}

}  // namespace

TEST_CASE("a ring gives back what was written, in order, over its seam") {
  Ends ends;
  CHECK(ends.reader.is_empty());
  CHECK(read_some(ends.reader) == "");
  std::mt19937 random(7);
  std::string written;
  std::string read;
  while (written.size() < 10 * ShmRing::kBytes) {
    std::string piece(random() % 5000, static_cast<char>('a' + random() % 26));
    piece.resize(ends.writer.write(piece));
    written += piece;
    if (random() % 2 == 0) {
      read += read_some(ends.reader);
    }
  }
  while (!ends.reader.is_empty()) {
    read += read_some(ends.reader);
  }
  CHECK((read == written));
}

TEST_CASE("a full ring takes nothing, and tells the reader once that its writer waits for room") {
  Ends ends;
  const std::string much(ShmRing::kBytes, 'x');
  const std::size_t taken = ends.writer.write(much);
  CHECK(taken < much.size());
  CHECK(ends.writer.write("y") == 0);
  CHECK_FALSE(ends.reader.was_asked());
  ends.writer.ask_for_room();
  CHECK(read_some(ends.reader).size() == taken);
  CHECK(ends.reader.was_asked());
  CHECK_FALSE(ends.reader.was_asked());
  CHECK(ends.writer.write("y") == 1);
  CHECK(read_some(ends.reader) == "y");
}

TEST_CASE("a closed ring has ended once all is read") {
  Ends ends;
  ends.writer.write("last");
  CHECK_FALSE(ends.reader.has_ended());
  ends.writer.close();
  CHECK_FALSE(ends.reader.has_ended());
  CHECK(read_some(ends.reader) == "last");
  CHECK(ends.reader.has_ended());
}

TEST_CASE("a ring whose words make no sense is an error and not a read beyond it") {
  Ends ends;
  const std::uint64_t nonsense = 1ULL << 60U;
  std::memcpy(ends.memory, &nonsense, sizeof nonsense);
  CHECK(ends.reader.readable().error().code() == Code::kProtocol);
}

TEST_CASE("a bell that was set wakes once, and one that was not never") {
  alignas(kCacheLineBytes) std::uint8_t memory[kCacheLineBytes] = {};
  ShmBell owner(memory);
  ShmBell other(memory);
  CHECK_FALSE(other.take());
  owner.set();
  CHECK(other.take());
  CHECK_FALSE(other.take());
  owner.set();
  owner.clear();
  CHECK_FALSE(other.take());
}

TEST_CASE("writer and reader at once: nothing is lost, doubled or torn") {
  Ends ends;
  static constexpr std::uint64_t kNumbers = 300'000;
  std::thread writing([&] {
    for (std::uint64_t n = 0; n < kNumbers; ++n) {
      std::string_view rest(reinterpret_cast<const char*>(&n), sizeof n);
      while (!rest.empty()) {
        const std::size_t taken = ends.writer.write(rest);
        rest.remove_prefix(taken);
        if (taken == 0) {
          std::this_thread::yield();
        }
      }
    }
  });
  std::string rest;
  std::uint64_t next = 0;
  bool is_in_order = true;
  while (next < kNumbers) {
    const std::string more = read_some(ends.reader);
    if (more.empty()) {
      std::this_thread::yield();
    }
    rest += more;
    std::size_t at = 0;
    for (; rest.size() - at >= sizeof next; at += sizeof next, ++next) {
      is_in_order = is_in_order && std::memcmp(rest.data() + at, &next, sizeof next) == 0;
    }
    rest.erase(0, at);
  }
  writing.join();
  CHECK(is_in_order);
  CHECK(ends.reader.is_empty());
}

}  // namespace hvd::shm_ring_test
