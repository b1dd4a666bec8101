#include "launcher/transport/tcp_dial.h"

#include <filesystem>
#include <memory>
#include <optional>

#include <doctest/doctest.h>

#include "tests/support/refusing_port.h"
#include "tests/support/silent_port.h"
#include "tests/support/still_clock.h"

namespace hvd::launch::tcp_dial_test {
namespace {

using hvd::test::SilentPort;

std::vector<SocketAddress> addresses_of(const std::vector<std::string>& ips) {
  std::vector<SocketAddress> addresses;
  for (const std::string& ip : ips) {
    addresses.push_back(SocketAddress::make(ip, 22).value());
  }
  return addresses;
}

std::vector<std::string> ips_of(const std::vector<SocketAddress>& addresses) {
  std::vector<std::string> ips;
  for (const SocketAddress& address : addresses) {
    ips.push_back(address.ip());
  }
  return ips;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

struct Listener {
  Fd fd = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  SocketAddress address = SocketAddress::local_of(fd.get()).value();
  [[nodiscard]] bool was_called() const { return accept_ready(fd.get()).value().is_open(); }
};

// Dials with a clock that only the test moves.
struct Dialler {
  hvd::test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::unique_ptr<TcpDial> dial;
  std::optional<Result<Fd>> done;

  void start(const std::vector<SocketAddress>& addresses) {
    dial = std::make_unique<TcpDial>(*loop, addresses, [this](Result<Fd> result) { done.emplace(std::move(result)); });
    dial->start();
    CHECK(!done);
    turn();
  }
  void turn() const { REQUIRE(loop->turn(Deadline::after(Duration::zero())).ok()); }
  void wait() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(300));
    while (!done && !deadline.has_passed()) {
      REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(50))).ok());
    }
    REQUIRE(done);
  }
  void wait_for_words(const std::string& words) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(300));
    while (dial->words() != words && !deadline.has_passed()) {
      REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(50))).ok());
    }
    CHECK(dial->words() == words);
  }
};

TEST_CASE("addresses are dialled once each and the kinds in turn") {
  CHECK(ips_of(dialling_order(addresses_of({"::1", "fd00::1", "10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"}))) ==
        std::vector<std::string>{"::1", "10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.3"});
  CHECK(ips_of(dialling_order(addresses_of({"10.0.0.1", "fd00::1", "fd00::2"}))) ==
        std::vector<std::string>{"10.0.0.1", "fd00::1", "fd00::2"});
}

TEST_CASE("an address that says nothing is left behind for the next one, a quarter of a second later and not before") {
  const SilentPort silent("127.0.0.2");
  const Listener listener;
  Dialler dialler;
  const auto before = open_descriptors();
  dialler.start({silent.address(), listener.address});
  dialler.clock.advance(TcpDial::kPace - std::chrono::nanoseconds(1));
  dialler.turn();
  CHECK(dialler.dial->words() == "127.0.0.2 gave no answer, 127.0.0.1 was not tried yet");
  dialler.clock.advance(std::chrono::nanoseconds(1));
  dialler.wait();
  REQUIRE(dialler.done->ok());
  CHECK(SocketAddress::peer_of(dialler.done->value().get()).value().text() == listener.address.text());
  CHECK(dialler.dial->current().text() == listener.address.text());
  CHECK(open_descriptors() == before + 1);  // the other attempt is closed
  CHECK(listener.was_called());
}

TEST_CASE("while the first address has time, no other is called; when it fails, the next one is called at once") {
  const Listener first;
  const Listener second;
  const RefusingPort refusing;
  Dialler dialler;
  dialler.start({first.address, second.address});
  dialler.wait();
  REQUIRE(dialler.done->ok());
  CHECK(dialler.dial->current().text() == first.address.text());
  CHECK(!second.was_called());

  Dialler another;
  another.start({refusing.address(), second.address});
  another.wait();
  REQUIRE(another.done->ok());
  CHECK(another.dial->current().text() == second.address.text());
}

TEST_CASE("an address that is silent is waited for while others refuse, and all are named with what they said") {
  const SilentPort silent("127.0.0.2");
  const RefusingPort refusing;
  Dialler dialler;
  dialler.start({silent.address(), refusing.address()});
  dialler.clock.advance(TcpDial::kPace);
  dialler.wait_for_words("127.0.0.2 gave no answer, 127.0.0.1 refused");
  CHECK(!dialler.done);
}

TEST_CASE("when all addresses have failed, the error is that of the last one") {
  const RefusingPort one;
  const RefusingPort other;
  Dialler dialler;
  dialler.start({one.address(), other.address()});
  dialler.wait();
  REQUIRE(!dialler.done->ok());
  CHECK(dialler.done->error().sys_errno() == ECONNREFUSED);
  CHECK(dialler.dial->words() == "127.0.0.1 refused, 127.0.0.1 refused");
}

TEST_CASE("a dial that is given up closes all its attempts and says nothing more") {
  const SilentPort one("127.0.0.2");
  const SilentPort other("127.0.0.3");
  Dialler dialler;
  const auto before = open_descriptors();
  dialler.start({one.address(), other.address()});
  dialler.clock.advance(TcpDial::kPace);
  dialler.turn();
  CHECK(open_descriptors() == before + 2);
  dialler.dial.reset();
  CHECK(open_descriptors() == before);
  dialler.clock.advance(std::chrono::hours(1));
  dialler.turn();
  CHECK(!dialler.done);
}

}  // namespace

}  // namespace hvd::launch::tcp_dial_test
