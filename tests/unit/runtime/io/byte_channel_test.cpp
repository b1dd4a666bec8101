#include "runtime/io/byte_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include <doctest/doctest.h>

#include "runtime/io/socket.h"

namespace hvd::byte_channel_test {
namespace {

// Each byte is sent as its complement, and a byte of zero is the sign that something is wrong.
class Complement final : public ByteFilter {
 public:
  Result<void> seal(std::string_view bytes, std::string& wire) override {
    if (bytes == "unsealable") {
      return Error(Code::kResource, "it cannot be sealed");
    }
    for (const char c : bytes) {
      wire += static_cast<char>(~c);
    }
    return {};
  }
  void feed(Bytes wire) override { wire_ += as_text(wire); }
  Result<std::optional<Bytes>> next() override {
    if (wire_.empty()) {
      return std::optional<Bytes>();
    }
    given_ = static_cast<char>(~wire_.front());
    wire_.erase(0, 1);
    if (given_ == 0) {
      return Error(Code::kAuth, "not what was sent");
    }
    return std::optional<Bytes>(as_bytes(std::string_view(&given_, 1)));
  }

 private:
  std::string wire_;
  char given_ = 0;
};

struct Ends {
  Ends() {
    int fds[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    wire = Fd(fds[1]);
    ByteChannel::Handlers handlers;
    handlers.on_bytes = [this](Bytes bytes) {
      heard += as_text(bytes);
      if (heard.size() == leaves_after) {
        channel.reset();
      }
    };
    handlers.on_closed = [this](const Error& why) { closed = why; };
    channel = ByteChannel::create(*loop, Fd(fds[0]), Fd(), std::move(handlers), std::make_unique<Complement>()).value();
  }
  void say(std::string_view bytes) {
    REQUIRE(send_all(wire.get(), as_bytes(bytes), Deadline::after(std::chrono::minutes(5))).ok());
  }
  template <typename Condition>
  void wait(const Condition& condition) {
    const Deadline deadline = Deadline::after(std::chrono::minutes(5));
    while (!condition() && !deadline.has_passed()) {
      REQUIRE(loop->turn(deadline).ok());
    }
    REQUIRE(condition());
  }

  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  Fd wire;
  std::string heard;
  std::size_t leaves_after = 0;
  std::optional<Error> closed;
  std::unique_ptr<ByteChannel> channel;
};

}  // namespace

TEST_CASE("a filter stands between a channel and the wire, in both directions") {
  Ends ends;
  CHECK(ends.channel->is_filtered());
  ends.channel->write("ab");
  std::array<std::uint8_t, 2> got{};
  REQUIRE(recv_exact(ends.wire.get(), got, Deadline::after(std::chrono::minutes(5))).ok());
  CHECK(as_text(got) == "\x9e\x9d");
  ends.say("\x9e\x9d\x9c");
  ends.wait([&] { return ends.heard == "abc"; });
}

TEST_CASE("what a filter refuses is the connection's end, after what came before it") {
  Ends ends;
  ends.say("\x9e\xff\x9e");
  ends.wait([&] { return ends.closed.has_value(); });
  CHECK(ends.closed->code() == Code::kAuth);
  CHECK(ends.heard == "a");
}

TEST_CASE("what cannot be sealed is told by the loop as the connection's end, and nothing of it is sent") {
  Ends ends;
  ends.channel->write("unsealable");
  CHECK_FALSE(ends.closed.has_value());
  ends.wait([&] { return ends.closed.has_value(); });
  CHECK(ends.closed->code() == Code::kResource);
  std::array<std::uint8_t, 1> got{};
  CHECK(::recv(ends.wire.get(), got.data(), got.size(), MSG_DONTWAIT) <= 0);
}

TEST_CASE("a handler may destroy a channel amid what its filter has to give") {
  Ends ends;
  ends.leaves_after = 2;
  ends.say("\x9e\x9d\x9c\x9b");
  ends.wait([&] { return ends.channel == nullptr; });
  CHECK(ends.heard == "ab");
}

TEST_CASE("who ends its half of a socket still gets all that is written to it, where that is wanted") {
  const SteadyClock clock;
  const std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  Fd peer(fds[1]);
  REQUIRE(set_nonblocking(peer.get()).ok());
  int ends = 0;
  int closes = 0;
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [](Bytes) {};
  handlers.on_closed = [&closes](const Error& why) {
    CHECK(why.code() == Code::kLostPeer);
    ++closes;
  };
  handlers.on_input_end = [&ends] { ++ends; };
  const auto channel = ByteChannel::create(*loop, Fd(fds[0]), Fd(), std::move(handlers)).value();
  constexpr std::size_t kSize = 4'000'000;  // more than the socket holds
  channel->write(std::string(kSize, 'x'));
  channel->close_output();
  REQUIRE(::shutdown(peer.get(), SHUT_WR) == 0);
  std::size_t got = 0;
  std::string buffer(65536, ' ');
  const Deadline deadline = Deadline::after(std::chrono::minutes(5));
  while (closes == 0 && !deadline.has_passed()) {
    REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(10))).ok());
    if (ends > 0) {
      const ssize_t count = ::read(peer.get(), buffer.data(), buffer.size());
      got += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
  }
  CHECK(ends == 1);
  CHECK(closes == 1);
  for (ssize_t count = 1; count > 0;) {
    count = ::read(peer.get(), buffer.data(), buffer.size());
    got += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  CHECK(got == kSize);
}

}  // namespace hvd::byte_channel_test
