// What libssh2 gets of a socket's bytes, and servers that would hold the loop without that.
#include "launcher/ssh/ssh_intake.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "launcher/ssh/ssh_wire.h"
#include "tests/unit/launcher/ssh/ssh_launcher.h"
#include "tests/unit/launcher/transport/recording.h"

namespace hvd::launch::ssh_intake_test {
namespace {

using namespace std::string_literals;

using test::has;
using test::no_sshd;
using test::RecordingSink;
using test::SshLauncher;

constexpr const char* kBanner = "SSH-2.0-OpenSSH_9.2\r\n";

struct Ends {
  Fd ours;
  Fd theirs;

  Ends() {
    std::array<int, 2> pair{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) == 0);
    ours = Fd(pair[0]);
    theirs = Fd(pair[1]);
  }
  void say(std::string_view text) const {
    REQUIRE(send_all(theirs.get(), as_bytes(text), Deadline::after(Duration::zero())).ok());
  }
};

struct Taken {
  std::string bytes;
  ssize_t last = 0;  // what take() said when there was nothing more
};

// As libssh2 does it: a byte at a time, or as much as there is, until it is told that there is nothing now.
Taken take_all(SshIntake& intake, std::size_t step) {
  Taken taken;
  std::string buffer(step, '\0');
  for (;;) {
    taken.last = intake.take(buffer.data(), buffer.size(), 0);
    if (taken.last <= 0) {
      return taken;
    }
    taken.bytes.append(buffer, 0, static_cast<std::size_t>(taken.last));
  }
}

TEST_CASE("of what a server sends first, its identification alone is handed over, and all that follows") {
  for (const std::size_t step : {std::size_t{1}, std::size_t{4096}}) {
    const Ends ends;
    SshIntake intake(ends.ours.get());
    ends.say(std::string("welcome\r\nno SSH-2.0 here\n") + kBanner + "\0rest\n"s + "more");
    const Taken taken = take_all(intake, step);
    CHECK(taken.bytes == kBanner + "\0rest\nmore"s);
    CHECK(taken.last == -EAGAIN);
  }
}

TEST_CASE("an identification that comes byte by byte is handed over when it is whole") {
  const Ends ends;
  SshIntake intake(ends.ours.get());
  const std::string banner = kBanner;
  for (std::size_t i = 0; i + 1 < banner.size(); ++i) {
    ends.say(banner.substr(i, 1));
    CHECK(take_all(intake, 16).bytes.empty());
  }
  ends.say("\n");
  CHECK(take_all(intake, 16).bytes == banner);
}

TEST_CASE("a server that sends text and no identification is refused, however it is cut into lines") {
  for (const auto& [text, lines] :
       {std::pair("\n"s, "1024 lines"), std::pair(std::string(100, 'x'), "0 lines (64 KiB)"),
        std::pair(std::string(1023, 'x') + "\n", "64 lines (64 KiB)")}) {
    const Ends ends;
    SshIntake intake(ends.ours.get());
    ssize_t last = -EAGAIN;
    for (int i = 0; i < 100'000 && last == -EAGAIN; ++i) {
      ends.say(text);
      last = take_all(intake, 1).last;
    }
    CHECK(last == -ECONNABORTED);
    REQUIRE(intake.refusal());
    CHECK(has(intake.refusal()->message(), std::string("it sent ") + lines));
    CHECK(take_all(intake, 1).last == -ECONNABORTED);
  }
}

TEST_CASE("an identification without an end is refused") {
  const Ends ends;
  SshIntake intake(ends.ours.get());
  ends.say("SSH-2.0-" + std::string(300, 'x'));
  CHECK(take_all(intake, 1).last == -ECONNABORTED);
  CHECK(has(intake.refusal()->message(), "its identification is longer than 255 bytes"));
}

// A peer that fills the socket up again and again, as one that is faster than we.
struct Flood {
  const Ends ends;
  SshIntake intake{ends.ours.get()};

  Flood() { ends.say(kBanner); }
  void fill() const {
    const std::string much(1U << 16U, 'x');
    while (::send(ends.theirs.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  // Bytes until the library hears that there is nothing now.
  std::size_t one_call() {
    std::string buffer(16U << 10U, '\0');
    std::size_t taken = 0;
    for (;;) {
      fill();
      const ssize_t got = intake.take(buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        return taken;
      }
      taken += static_cast<std::size_t>(got);
    }
  }
};

TEST_CASE("no call of the library gets more than it can read in a moment, and the next one goes on") {
  Flood flood;
  flood.intake.lift_limit();
  CHECK(flood.one_call() == SshIntake::kCallBytes + std::string(kBanner).size());
  for (int i = 0; i < 20; ++i) {
    CHECK(flood.one_call() == SshIntake::kCallBytes);
  }
  CHECK(!flood.intake.refusal());
  flood.intake.cut();
  CHECK(take_all(flood.intake, 1).last == 0);
}

TEST_CASE("what a server may send before the user is logged in is bounded") {
  Flood flood;
  std::size_t taken = 0;
  while (!flood.intake.refusal()) {
    taken += flood.one_call();
  }
  CHECK(taken == SshIntake::kMostBytes + std::string(kBanner).size());
  CHECK(has(flood.intake.refusal()->message(), "it sent more than 1 MiB before the login was over"));
}

// Says one thing to whoever calls, and another again and again for as long as it is heard.
class TalkingServer {
 public:
  TalkingServer(std::string first, std::string again) : first_(std::move(first)), again_(std::move(again)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~TalkingServer() {
    is_over_ = true;
    thread_.join();
  }
  TalkingServer(const TalkingServer&) = delete;
  TalkingServer& operator=(const TalkingServer&) = delete;

  [[nodiscard]] bool is_talking() const { return is_talking_; }
  // A file for `ssh -F` that names it.
  [[nodiscard]] std::string config() const {
    const auto port = SocketAddress::local_of(listener_.get()).value().port();
    test::write_file(dir_.path("config"), "Host talker\n  HostName 127.0.0.1\n  Port " + std::to_string(port) +
                                              "\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
                                              "  IdentityFile /dev/null\n  IdentityAgent none\n");
    return dir_.path("config");
  }

 private:
  void serve() {
    while (!is_over_) {
      auto caller = accept_one(listener_.get(), Deadline::after(std::chrono::milliseconds(50)));
      if (caller.ok()) {
        talk(caller.value().get());
      }
    }
  }
  void talk(int fd) {
    const Deadline end = Deadline::after(test::kPatience);
    bool is_heard = send_all(fd, as_bytes(first_), end).ok();
    is_talking_ = is_heard;
    while (is_heard && !again_.empty() && !is_over_ && !end.has_passed()) {
      is_heard = send_all(fd, as_bytes(again_), end).ok();
    }
    is_talking_ = is_heard && !end.has_passed();
    while (is_heard && !is_over_ && !end.has_passed()) {  // silent, until the caller goes
      pollfd gone{fd, POLLRDHUP, 0};
      is_heard = ::poll(&gone, 1, 50) == 0;
    }
    is_talking_ = false;
  }

  const std::string first_;
  const std::string again_;
  const test::TempDir dir_;
  const Fd listener_ = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  std::atomic<bool> is_over_ = false;
  std::atomic<bool> is_talking_ = false;
  std::thread thread_;
};

// RFC 4253 section 6, without encryption and MAC.
std::string packet(const std::string& payload) {
  const std::size_t padding = 8 - (payload.size() + 5) % 8 + (8 - (payload.size() + 5) % 8 < 4 ? 8 : 0);
  return wire_number(static_cast<std::uint32_t>(payload.size() + 1 + padding)) + static_cast<char>(padding) + payload +
         std::string(padding, 'p');
}

std::string key_exchange_init(const std::string& method) {
  std::string payload(1, '\x14');
  payload += std::string(16, 'c');
  for (const std::string& list : {method, "ssh-ed25519,rsa-sha2-256,rsa-sha2-512,ssh-rsa"s, "aes128-ctr"s,
                                  "aes128-ctr"s, "hmac-sha2-256"s, "hmac-sha2-256"s, "none"s, "none"s, ""s, ""s}) {
    payload += wire_text(list);
  }
  return packet(payload + std::string(5, '\0'));
}

TEST_CASE("a server that talks without end before it has proved itself ends by a line, and the loop turns on") {
  if (no_sshd()) {
    return;
  }
  const std::string ignore = packet("\x02" + wire_text(""));
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += ignore;
  }
  struct Case {
    std::string first;
    std::string again;
    std::string told;
  };
  for (const Case& c :
       {Case{"", "hello\r\n", "it sent 1024 lines"}, Case{"", std::string(1000, 'x'), "it sent 0 lines (64 KiB)"},
        Case{"SSH-2.0-", std::string(1000, 'x'), "its identification is longer than 255 bytes"},
        Case{kBanner, many, "it sent more than 1 MiB before the login was over"},
        Case{kBanner + key_exchange_init("curve25519-sha256"), many, "it sent more than 1 MiB"}}) {
    const TalkingServer server(c.first, c.again);
    SshLauncher launcher(server.config());
    const std::string why = launcher.failure("talker");
    CHECK(has(why, "talker: no ssh session with 127.0.0.1 port "));
    CHECK(has(why, c.told));
  }
}

TEST_CASE("a server that names a length of 2^31, or nothing but a byte now and then, waits for the time limit alone") {
  if (no_sshd()) {
    return;
  }
  for (const std::string& said :
       {""s, "S"s, std::string(kBanner), kBanner + "\x7f\xff\xff\xff"s, kBanner + packet("\x14").substr(0, 7)}) {
    std::string why = "'ssh -G' gave no answer";
    for (int limit_ms = 300; has(why, "'ssh -G' gave no answer") && limit_ms < 60'000; limit_ms *= 4) {
      const TalkingServer server(said, "");  // which a busy machine does not come to within a short limit
      SshLauncher launcher(server.config());
      launcher.options.connect_timeout = std::chrono::milliseconds(limit_ms);
      why = launcher.failure("talker");
    }
    CHECK(has(why, "talker: "));
    CHECK_MESSAGE(
        (why.find("did not finish the key exchange within") != std::string::npos ||
         why.find("no ssh session with") != std::string::npos || why.find("the system's ssh") != std::string::npos),
        why);
  }
}

TEST_CASE("a group exchange, in which the server would choose how long we compute, is left to the user's ssh") {
  if (no_sshd()) {
    return;
  }
  std::string modulus(3000, '\x7b');  // libssh2 takes up to 40,000 bytes, and computes for hours
  modulus.back() = '\x7d';
  const std::string group = packet("\x1f" + wire_text(modulus) + wire_text("\x02"));
  for (const char* method : {"diffie-hellman-group-exchange-sha256", "diffie-hellman-group18-sha512"}) {
    const TalkingServer server(kBanner + key_exchange_init(method) + group, "");
    SshLauncher launcher(server.config());
    RecordingSink sink;
    const auto stream = launcher.open(sink, "talker");
    CHECK(launcher.wait([&] { return !sink.notices.empty() || sink.closed; }));
    REQUIRE(!sink.notices.empty());
    CHECK(has(sink.notices.front(), "using the system's ssh, because "));
    CHECK(has(sink.notices.front(), " shares no algorithm with the server"));
  }
}

}  // namespace

}  // namespace hvd::launch::ssh_intake_test
