#include "runtime/io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/io/pass_fds.h"
#include "tests/support/refusing_port.h"

namespace hvd::socket_test {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(300));
}

struct Connection {
  Fd here;
  Fd there;
};

Connection connect_on_loopback() {
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  Fd here = connect_tcp(SocketAddress::local_of(listener.get()).value(), soon()).value();
  return Connection{std::move(here), accept_one(listener.get(), soon()).value()};
}

}  // namespace

TEST_CASE("numeric addresses are taken, printed and nothing else is") {
  CHECK(SocketAddress::make("10.0.0.1", 5000).value().text() == "10.0.0.1:5000");
  CHECK(SocketAddress::make("::1", 80).value().text() == "[::1]:80");
  CHECK(SocketAddress::make("fe80::1%lo", 1).value().text() == "[fe80::1%lo]:1");
  for (const char* text : {"", "localhost", "10.0.0", "10.0.0.1:80", "1.2.3.4.5", "::g", "[::1]", "10.0.0.1 "}) {
    CAPTURE(text);
    CHECK_FALSE(SocketAddress::make(text, 1).ok());
  }
}

TEST_CASE("a connection knows both of its ends") {
  const Connection c = connect_on_loopback();
  CHECK(SocketAddress::peer_of(c.here.get()).value().text() == SocketAddress::local_of(c.there.get()).value().text());
  CHECK(SocketAddress::peer_of(c.there.get()).value().port() == SocketAddress::local_of(c.here.get()).value().port());
  CHECK(tune_tcp(c.here.get()).ok());
}

TEST_CASE("a connection within a cluster does not begin with BBR; a name is taken, or refused by name") {
  const auto of = [](int fd) {
    std::array<char, 17> name{};
    socklen_t size = name.size() - 1;
    REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0);
    return std::string(name.data());
  };
  const auto any_port = SocketAddress::make("127.0.0.1", 0).value();
  const Fd listener = listen_tcp(any_port).value();
  const std::string own = of(listener.get());
  CHECK(choose_congestion(listener.get(), "").ok());
  const auto address = SocketAddress::local_of(listener.get()).value();
  const Fd near = start_connect_tcp(address, [](int fd) { return choose_congestion(fd, ""); }).value();
  const Fd accepted(::accept(listener.get(), nullptr, nullptr));
  REQUIRE(accepted.is_open());
  for (const int fd : {near.get(), accepted.get()}) {
    const std::string now = of(fd);
    CHECK((own.starts_with("bbr") ? now == "cubic" || now == "reno" : now == own));
    settle_congestion(fd);
    CHECK(of(fd) == now);
  }
  const Fd named = start_connect_tcp(address, [](int fd) { return choose_congestion(fd, "reno"); }).value();
  CHECK(of(named.get()) == "reno");
  for (const char* name : {"nosuchthing", "a-name-of-seventeen-letters"}) {
    const auto refused = start_connect_tcp(address, [name](int fd) { return choose_congestion(fd, name); });
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code() == Code::kInvalid);
    CHECK(refused.error().message().find(std::string("'") + name + "'") != std::string::npos);
    CHECK(refused.error().message().find("No such file or directory") != std::string::npos);
  }
  const auto pair = make_socket_pair();
  CHECK(choose_congestion(pair.value().first.get(), "reno").ok());
  settle_congestion(pair.value().first.get());
}

TEST_CASE("more than a socket buffer holds goes through, and an end before the last byte is a lost peer") {
  Connection c = connect_on_loopback();
  const std::string sent(20U << 20U, 'z');
  std::thread sender([&] {
    CHECK(send_all(c.here.get(), as_bytes(sent), soon()).ok());
    c.here.reset();
  });
  std::vector<std::uint8_t> got(sent.size());
  CHECK(recv_exact(c.there.get(), got, soon()).ok());
  sender.join();
  CHECK(as_text(got) == sent);
  const auto end = recv_exact(c.there.get(), MutableBytes(got).first(1), soon());
  REQUIRE_FALSE(end.ok());
  CHECK(end.error().code() == Code::kLostPeer);
}

TEST_CASE("waits end at their deadline") {
  const Connection c = connect_on_loopback();
  std::uint8_t byte = 0;
  const auto passed = Deadline::after(std::chrono::milliseconds(5));
  const auto got = recv_exact(c.there.get(), MutableBytes(&byte, 1), passed);
  REQUIRE_FALSE(got.ok());
  CHECK(got.error().code() == Code::kTimeout);
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  CHECK(accept_one(listener.get(), passed).error().code() == Code::kTimeout);
  CHECK_FALSE(accept_ready(listener.get()).value().is_open());
}

TEST_CASE("sending to a peer that is gone is an error, not a signal") {
  Connection c = connect_on_loopback();
  c.there.reset();
  const std::string text(1U << 20U, 'x');
  Result<void> sent = send_all(c.here.get(), as_bytes(text), soon());
  for (int i = 0; i < 10 && sent.ok(); ++i) {
    sent = send_all(c.here.get(), as_bytes(text), soon());
  }
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code() == Code::kLostPeer);
}

TEST_CASE("a port where nobody listens is unreachable, in one step or in two") {
  const RefusingPort nobody;
  const SocketAddress& address = nobody.address();
  const auto fd = connect_tcp(address, soon());
  REQUIRE_FALSE(fd.ok());
  CHECK(fd.error().code() == Code::kUnreachable);
  CHECK(fd.error().message().find(address.text()) != std::string::npos);
  const auto started = start_connect_tcp(address);
  // Loopback may refuse at once.
  CHECK((!started.ok() || !finish_connect(started.value().get(), "connect").ok()));
}

TEST_CASE(
    "a unix socket is its owner's, tells who is at its other end, and a path that is too long is refused by name") {
  std::string dir = "/tmp/hvd-test-XXXXXX";
  REQUIRE(::mkdtemp(dir.data()) != nullptr);
  {
    const mode_t before = ::umask(0);
    const Fd listener = listen_unix(dir + "/s").value();
    ::umask(before);
    CHECK(std::filesystem::status(dir + "/s").permissions() == (std::filesystem::perms(0600)));
    const Fd here = connect_unix(dir + "/s", soon()).value();
    const Fd there = accept_one(listener.get(), soon()).value();
    CHECK(peer_uid(there.get()).value() == ::getuid());
    CHECK(peer_pid(here.get()).value() == ::getpid());
  }
  CHECK_FALSE(listen_unix(dir + "/s").ok());  // taken
  const auto too_long = listen_unix(dir + "/" + std::string(200, 'n'));
  REQUIRE_FALSE(too_long.ok());
  CHECK(too_long.error().code() == Code::kInvalid);
  CHECK(connect_unix(dir + "/none", soon()).error().code() == Code::kNotFound);
  std::filesystem::remove_all(dir);
}

TEST_CASE("a unix listener takes the place of one that a killed process has left, and of its unfinished name") {
  std::string dir = "/tmp/hvd-test-XXXXXX";
  REQUIRE(::mkdtemp(dir.data()) != nullptr);
  {
    const Fd left = listen_unix(dir + "/s").value();
  }
  {
    const Fd unfinished = listen_unix(dir + "/s.new").value();
  }
  CHECK(connect_unix(dir + "/s", soon()).error().code() == Code::kUnreachable);
  const Fd listener = replace_unix_listener(dir + "/s").value();
  CHECK(connect_unix(dir + "/s", soon()).ok());
  CHECK_FALSE(std::filesystem::exists(dir + "/s.new"));
  std::filesystem::create_directories(dir + "/folder/within");
  const auto refused = replace_unix_listener(dir + "/folder");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("cannot listen at " + dir + "/folder") == 0);
  CHECK_FALSE(std::filesystem::exists(dir + "/folder.new"));
  std::filesystem::remove_all(dir);
}

TEST_CASE("a unix listener whose queue is full is waited for until the deadline") {
  std::string dir = "/tmp/hvd-test-XXXXXX";
  REQUIRE(::mkdtemp(dir.data()) != nullptr);
  const Fd listener = listen_unix(dir + "/s", 1).value();
  std::vector<Fd> queued;
  Result<Fd> next = connect_unix(dir + "/s", soon());
  while (next.ok()) {
    queued.push_back(std::move(next).value());
    REQUIRE(queued.size() < 100);
    next = connect_unix(dir + "/s", Deadline::after(std::chrono::milliseconds(20)));
  }
  std::thread acceptor([&] {
    for (std::size_t i = 0; i < queued.size() + 1; ++i) {
      CHECK(accept_one(listener.get(), soon()).ok());
    }
  });
  CHECK(connect_unix(dir + "/s", soon()).ok());
  acceptor.join();
  std::filesystem::remove_all(dir);
}

TEST_CASE("this machine's addresses are numeric and without loopback") {
  const auto ips = interface_ips();
  REQUIRE(ips.ok());
  for (const std::string& ip : ips.value()) {
    CHECK(SocketAddress::make(ip, 1).ok());
    CHECK(ip.rfind("127.", 0) != 0);
  }
}

TEST_CASE("descriptors are passed as one piece, and what is not that is refused") {
  const auto make_pair = [] {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    return std::pair(Fd(pair[0]), Fd(pair[1]));
  };
  const auto pair = make_pair();
  const Fd& near = pair.first;
  const Fd& far = pair.second;
  CHECK(receive_fds(far.get()).error().sys_errno() == EAGAIN);
  const auto other = make_pair();
  const Fd& first = other.first;
  const Fd& second = other.second;
  REQUIRE(pass_fds(near.get(), first.get(), second.get(), as_bytes("word")).ok());
  const auto passed = receive_fds(far.get());
  REQUIRE(passed.ok());
  CHECK(passed.value().bytes == "word");
  // They are the same pair: what goes in at one comes out at the other.
  REQUIRE(::write(passed.value().fds[0].get(), "x", 1) == 1);
  char got = 0;
  CHECK(::read(passed.value().fds[1].get(), &got, 1) == 1);
  CHECK((::fcntl(passed.value().fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);

  CHECK(pass_fds(near.get(), first.get(), second.get(), Bytes()).error().code() == Code::kInvalid);
  CHECK(pass_fds(near.get(), first.get(), -1, as_bytes("x")).error().sys_errno() == EBADF);
  REQUIRE(::write(near.get(), "no descriptors", 14) == 14);
  CHECK(receive_fds(far.get()).error().message() == "two descriptors were expected, 0 came");
}

TEST_CASE("an address is read as it is written, and nothing else is") {
  for (const char* text : {"10.0.0.1:4711", "[::1]:80", "0.0.0.0:0"}) {
    const auto address = SocketAddress::parse(text);
    REQUIRE(address.ok());
    CHECK(address.value().text() == text);
  }
  for (const char* text : {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:1x", "::1:80", "[10.0.0.1]:80",
                           "[]:80", "node1:80", "10.0.0.1:-1"}) {
    CAPTURE(text);
    CHECK_FALSE(SocketAddress::parse(text).ok());
  }
}

}  // namespace hvd::socket_test
