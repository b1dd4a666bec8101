// Data connections that are encrypted: move() over them, and what becomes of bytes that somebody has changed.
#include "runtime/link/sealed_stream.h"

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/fd.h"
#include "runtime/io/socket.h"
#include "runtime/link/stream_io.h"

namespace hvd::sealed_stream_test {
namespace {

class Patient final : public Interrupt {
 public:
  explicit Patient(int checks = 3000) : left_(checks) {}
  Result<void> check() override { return --left_ > 0 ? Result<void>() : Error(Code::kCancelled, "enough"); }

 private:
  int left_;
};

RecordKey key_of(std::uint8_t byte) {
  RecordKey key;
  key.key.fill(byte);
  key.salt.fill(byte);
  return key;
}

struct Side {
  LinkCounts counts;
  SealedStream stream;
  StreamPeer peer;

  Side(int fd, const RecordKeys& keys, const char* who, const char* here) : stream(keys) {
    peer = StreamPeer{fd, who, &counts, here, &stream};
  }
};

// Both ends of one connection.
struct Link {
  std::pair<Fd, Fd> fds = make_socket_pair().value();
  Side a{fds.first.get(), {key_of(1), key_of(2)}, "node 1 (rank 4)", "rank 0"};
  Side b{fds.second.get(), {key_of(2), key_of(1)}, "node 0 (rank 0)", "rank 4"};

  Link() {
    REQUIRE(set_nonblocking(fds.first.get()).ok());
    REQUIRE(set_nonblocking(fds.second.get()).ok());
  }
};

Looks no_looks() {
  return Looks(0);
}

Result<void> exchange(const StreamPeer& peer, Bytes out, MutableBytes in) {
  Patient interrupt;
  Looks looks = no_looks();
  return send_and_recv(peer, out, peer, in, looks, interrupt);
}

std::vector<std::uint8_t> filled(std::size_t size, std::uint8_t salt) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + salt);
  }
  return bytes;
}

// What one end sends in operations of these sizes, as it is on the wire.
std::string wire_of(const std::vector<std::size_t>& sizes) {
  Link link;
  for (const std::size_t size : sizes) {
    REQUIRE(exchange(link.b.peer, filled(size, 9), {}).ok());
  }
  std::string wire(1U << 17U, '\0');
  const ssize_t got = ::recv(link.fds.first.get(), wire.data(), wire.size(), MSG_DONTWAIT);
  wire.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return wire;
}

}  // namespace

TEST_CASE("operations of every size around a record's and a frame's come through encrypted, both ways at once") {
  Link link;
  const std::size_t frame = LinkSteps::kFrameBytes;
  const std::vector<std::size_t> sizes = {
      1, 16, 17, kRecordBytes - 33, kRecordBytes - 32, kRecordBytes, frame - 1, frame, frame + 1, 3 * frame + 5, 0, 1};
  std::thread other([&] {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<std::uint8_t> in(sizes[i]);
      CHECK(exchange(link.b.peer, filled(sizes[sizes.size() - 1 - i], 2), in).ok());
      CHECK(in == filled(sizes[i], 1));
    }
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::uint8_t> in(sizes[sizes.size() - 1 - i]);
    CHECK(exchange(link.a.peer, filled(sizes[i], 1), in).ok());
    CHECK(in == filled(in.size(), 2));
  }
  other.join();
}

TEST_CASE("operations that have come together are taken one by one") {
  Link link;
  const std::vector<std::size_t> sizes = {100, 1, 5000};
  for (const std::size_t size : sizes) {
    REQUIRE(exchange(link.a.peer, filled(size, 3), {}).ok());
  }
  for (const std::size_t size : sizes) {
    std::vector<std::uint8_t> in(size);
    REQUIRE(exchange(link.b.peer, {}, in).ok());
    CHECK(in == filled(size, 3));
  }
}

TEST_CASE("nothing of the data is to be read on the wire, and equal data looks different each time") {
  const std::string wire = wire_of({1000, 1000});
  const std::size_t half = 1000 + 2 * LinkSteps::kMarkBytes + kRecordOverhead;
  REQUIRE(wire.size() == 2 * half);
  const auto data = filled(1000, 9);
  for (std::size_t at = 0; at + 8 <= data.size(); ++at) {
    CHECK(wire.find(as_text(Bytes(data).subspan(at, 8))) == std::string::npos);
  }
  CHECK(wire.substr(kRecordHeaderBytes, 64) != wire.substr(half + kRecordHeaderBytes, 64));
}

TEST_CASE(
    "a byte that is changed, put in, left out or repeated is an error that names both ends, and no wrong number") {
  const std::string wire = wire_of({1000});
  std::vector<std::string> spoiled;
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{30}, std::size_t{500}, wire.size() - 1}) {
    spoiled.push_back(wire);
    spoiled.back()[at] = static_cast<char>(spoiled.back()[at] ^ 1);
    spoiled.push_back(wire);
    spoiled.back().insert(at, 1, 'i');
    spoiled.push_back(wire);
    spoiled.back().erase(at, 1);
  }
  for (const std::string& each : spoiled) {
    Link link;
    REQUIRE(send_all(link.fds.second.get(), as_bytes(each + std::string(4 * kRecordBytes / 64, 'z')),
                     Deadline::after(std::chrono::minutes(1)))
                .ok());
    link.fds.second.reset();
    std::vector<std::uint8_t> in(1000, 77);
    const auto received = exchange(link.a.peer, {}, in);
    REQUIRE_FALSE(received.ok());
    const std::string& words = received.error().message();
    // A length that was changed makes the record longer than what comes: its end is that of the connection.
    const bool is_cut = words.find("lost the connection to node 1 (rank 4)") == 0;
    const bool is_noticed =
        words.find("the encrypted connection from node 1 (rank 4) to rank 0 was changed on its way: ") == 0;
    CHECK_MESSAGE((is_cut || is_noticed), words);
    CHECK(in == std::vector<std::uint8_t>(1000, 77));
  }
  // The second operation's record in the first one's place, and the first one's again.
  const std::string two = wire_of({1000, 1000});
  for (const std::string& each : {two.substr(two.size() / 2), two.substr(0, two.size() / 2) + two}) {
    Link link;
    REQUIRE(send_all(link.fds.second.get(), as_bytes(each), Deadline::after(std::chrono::minutes(1))).ok());
    std::vector<std::uint8_t> in(1000);
    auto received = exchange(link.a.peer, {}, in);
    received = received.ok() ? exchange(link.a.peer, {}, in) : received;
    REQUIRE_FALSE(received.ok());
    CHECK(received.error().code() == Code::kProtocol);
  }
}

TEST_CASE("ranks that do not agree on a size are told so on an encrypted connection too") {
  Link link;
  REQUIRE(exchange(link.b.peer, filled(10, 1), {}).ok());
  std::vector<std::uint8_t> in(12);
  const auto received = exchange(link.a.peer, {}, in);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().message().find("is out of step: ") != std::string::npos);
}

TEST_CASE("an encrypted connection that ends is a lost peer that is named") {
  Link link;
  link.fds.second.reset();
  std::uint8_t byte = 0;
  const auto received = exchange(link.a.peer, {}, MutableBytes(&byte, 1));
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().code() == Code::kLostPeer);
  const auto sent = exchange(link.a.peer, Bytes(&byte, 1), {});
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code() == Code::kLostPeer);
}

}  // namespace hvd::sealed_stream_test
