// How long what may take on the way to a host, and who waits for whom: with a real sshd, and a clock that the test puts
// forward.
#include "launcher/ssh/ssh_reach.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/silent_port.h"
#include "tests/unit/launcher/ssh/ssh_launcher.h"
#include "tests/unit/launcher/transport/recording.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::ssh_reach_test {
namespace {

using hvd::test::SilentPort;
using test::has;
using test::no_sshd;
using test::RecordingSink;
using test::Sshd;
using test::SshLauncher;

// A name server that answers when the test lets it; every name is this machine. Shared with threads that may outlive
// the test.
class SlowNames {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mu_);
    is_open_ = true;
    changed_.notify_all();
  }
  bool was_asked(const std::string& host) {
    const std::lock_guard<std::mutex> lock(mu_);
    return asked_.count(host) != 0;
  }
  std::vector<SocketAddress> look_up(const std::string& host, int port) {
    std::unique_lock<std::mutex> lock(mu_);
    asked_.insert(host);
    changed_.wait(lock, [this] { return is_open_; });
    return {SocketAddress::make("127.0.0.1", static_cast<std::uint16_t>(port)).value()};
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool is_open_ = false;
  std::set<std::string> asked_;
};

struct NamedLauncher : SshLauncher {
  std::shared_ptr<SlowNames> names = std::make_shared<SlowNames>();

  explicit NamedLauncher(const std::string& config) : SshLauncher(config) {
    options.look_up = [names = names](const std::string& host, int port, int) { return names->look_up(host, port); };
  }
  ~NamedLauncher() { names->open(); }
  NamedLauncher(const NamedLauncher&) = delete;
  NamedLauncher& operator=(const NamedLauncher&) = delete;
};

void turn(const SshLauncher& launcher) {
  REQUIRE(launcher.loop->turn(Deadline::after(Duration::zero())).ok());
}

// For what no event of the loop tells.
bool poll(const SshLauncher& launcher, const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(test::kPatience);
  while (!condition() && !deadline.has_passed()) {
    launcher.wait([] { return false; }, std::chrono::milliseconds(20));
  }
  return condition();
}

// An sshd that asks somebody for a user's keys who takes until the test says so.
struct SlowLogin {
  test::TempDir dir;
  Sshd sshd;

  SlowLogin() : sshd(settings()) {
    test::write_file(script(), "touch " + dir.path("asked") + "; until [ -e " + dir.path("go") +
                                   " ]; do sleep 0.05; done; cat " + sshd.path("id_ed25519.pub") + "\n");
    test::write_file(sshd.path("authorized_keys"), "");
  }
  ~SlowLogin() { go(); }
  SlowLogin(const SlowLogin&) = delete;
  SlowLogin& operator=(const SlowLogin&) = delete;

  [[nodiscard]] std::string script() const { return dir.path("keys.sh"); }
  // sshd wants the command where nobody else can write; the shell is there.
  [[nodiscard]] std::string settings() const {
    return "AuthorizedKeysCommand /bin/sh " + script() + "\nAuthorizedKeysCommandUser " + LocalUser::current().name;
  }
  [[nodiscard]] bool was_asked() const { return test::file_exists(dir.path("asked")); }
  void go() const { test::write_file(dir.path("go"), ""); }
};

TEST_CASE("the time that names take does not count against their hosts") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  NamedLauncher launcher(sshd.write_client_config());
  launcher.options.answer_time = std::chrono::hours(10);
  RecordingSink one;
  RecordingSink other;
  const auto stream = launcher.open(one, "one.test");
  const auto second = launcher.open(other, "other.test");
  REQUIRE(
      poll(launcher, [&] { return launcher.names->was_asked("one.test") && launcher.names->was_asked("other.test"); }));
  launcher.clock.jumped += std::chrono::hours(1);
  turn(launcher);
  CHECK_MESSAGE(!one.closed, one.why());
  launcher.names->open();
  CHECK(launcher.wait([&] { return (one.is_open || one.closed) && (other.is_open || other.closed); }));
  CHECK_MESSAGE(one.is_open, one.why());
  CHECK_MESSAGE(other.is_open, other.why());
}

TEST_CASE("a name without an answer is told when all of the time is over") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  NamedLauncher launcher(sshd.write_client_config());
  RecordingSink sink;
  const auto stream = launcher.open(sink, "one.test");
  REQUIRE(poll(launcher, [&] { return launcher.names->was_asked("one.test"); }));
  launcher.clock.jumped += launcher.options.answer_time;
  REQUIRE(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(has(sink.why(), "one.test: resolving the host name 'one.test' took longer than 240 s; check DNS"));
}

// A host that accepts connections and says nothing.
struct StuckHost {
  Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  std::vector<Fd> accepted;

  [[nodiscard]] std::string config() const {
    return "Host stuck\n  HostName 127.0.0.1\n  Port " +
           std::to_string(SocketAddress::local_of(listener.get()).value().port());
  }
  bool was_called() {
    for (Fd next = accept_ready(listener.get()).value(); next.is_open(); next = accept_ready(listener.get()).value()) {
      accepted.push_back(std::move(next));
    }
    return !accepted.empty();
  }
};

TEST_CASE("hosts that answer nothing hold up no other") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const SilentPort silent;
  SshLauncher launcher(sshd.write_client_config("Host dead*\n  HostName 127.0.0.1\n  Port " + silent.port()));
  launcher.options.max_handshakes = 1;
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<Stream>> streams;
  for (const char* host : {"dead1", "dead2", "dead3", "node1"}) {
    sinks.push_back(std::make_unique<RecordingSink>());
    streams.push_back(launcher.open(*sinks.back(), host));
  }
  RecordingSink& healthy = *sinks.back();
  CHECK(launcher.wait([&] { return healthy.is_open || healthy.closed; }));
  CHECK_MESSAGE(healthy.is_open, healthy.why());
  CHECK(!sinks.front()->closed);
}

TEST_CASE("a host whose turn has not come is told so, not that it gave no answer") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  StuckHost stuck;
  SshLauncher launcher(sshd.write_client_config(stuck.config()));
  launcher.options.max_handshakes = 1;
  launcher.options.answer_time = std::chrono::seconds(100);
  RecordingSink one;
  RecordingSink other;
  const auto stream = launcher.open(one, "stuck");
  const auto second = launcher.open(other);
  REQUIRE(poll(launcher, [&] { return stuck.was_called(); }));
  launcher.clock.jumped += std::chrono::seconds(100);
  REQUIRE(launcher.wait([&] { return one.closed && other.closed; }));
  CHECK(has(one.why(), "stuck: 127.0.0.1 port "));
  CHECK(has(one.why(), " did not finish the key exchange within 1"));
  CHECK(has(other.why(), "node1: not tried yet after 100 s: it waited for other hosts"));
}

TEST_CASE("a host that answered late takes its turn again, and its time stands still until then") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  StuckHost stuck;
  NamedLauncher launcher(sshd.write_client_config(stuck.config()));
  launcher.options.max_handshakes = 1;
  launcher.options.connect_timeout = std::chrono::hours(1);
  launcher.options.answer_time = std::chrono::hours(10);
  RecordingSink late;
  RecordingSink other;
  const auto stream = launcher.open(late, "late.test");
  auto in_its_place = launcher.open(other, "stuck");
  REQUIRE(poll(launcher, [&] { return stuck.was_called(); }));
  launcher.names->open();
  REQUIRE(poll(launcher, [&] { return !sshd.session_pids().empty(); }));
  turn(launcher);  // it may have to hear yet that it is connected
  launcher.clock.jumped += std::chrono::minutes(50);
  turn(launcher);
  CHECK_MESSAGE(!other.closed, other.why());
  in_its_place.reset();
  launcher.clock.jumped += std::chrono::minutes(50);
  CHECK(launcher.wait([&] { return late.is_open || late.closed; }));
  CHECK_MESSAGE(late.is_open, late.why());
}

TEST_CASE("a server may take its time over a login, and other hosts need not wait for it") {
  if (no_sshd()) {
    return;
  }
  const SlowLogin slow;
  const Sshd quick;
  SshLauncher launcher(slow.sshd.write_client_config("Host quick\n  HostName 127.0.0.1\n  Port " +
                                                     std::to_string(quick.port()) + "\n  IdentityFile " +
                                                     quick.path("id_ed25519")));
  launcher.options.answer_time = std::chrono::hours(10);
  launcher.options.max_handshakes = 1;
  RecordingSink one;
  RecordingSink other;
  const auto stream = launcher.open(one);
  const auto second = launcher.open(other, "quick");
  REQUIRE(poll(launcher, [&] { return slow.was_asked(); }));
  launcher.clock.jumped += 2 * launcher.options.connect_timeout;
  CHECK(launcher.wait([&] { return other.is_open || other.closed || one.closed; }));
  CHECK_MESSAGE(other.is_open, other.why());
  CHECK_MESSAGE(!one.closed, one.why());
  slow.go();
  CHECK(launcher.wait([&] { return one.is_open || one.closed; }));
  CHECK_MESSAGE(one.is_open, one.why());
}

TEST_CASE("a login that never comes is told when all of the time is over") {
  if (no_sshd()) {
    return;
  }
  const SlowLogin slow;
  SshLauncher launcher(slow.sshd.write_client_config());
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  REQUIRE(poll(launcher, [&] { return slow.was_asked(); }));
  launcher.clock.jumped += launcher.options.answer_time;
  REQUIRE(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(has(sink.why(), "node1: not logged in at 127.0.0.1 port "));
  CHECK(has(sink.why(), " within 240 s; is the node overloaded"));
}

TEST_CASE("a login shell that hangs is told before all of the time is over") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("ForceCommand echo it hangs >&2; exec cat >/dev/null");
  SshLauncher launcher(sshd.write_client_config());
  launcher.options.answer_time = std::chrono::seconds(100);
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  REQUIRE(launcher.wait([&] { return launcher.log.text.find("it hangs") != std::string::npos; }));
  launcher.clock.jumped += std::chrono::seconds(100);
  REQUIRE(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(has(sink.why(),
            "node1: the agent did not start: logged in, its login shell was started, and then nothing was "
            "heard from the node for "));
  CHECK(has(sink.why(), "does its login shell hang (~/.bashrc)"));
}

}  // namespace

}  // namespace hvd::launch::ssh_reach_test
