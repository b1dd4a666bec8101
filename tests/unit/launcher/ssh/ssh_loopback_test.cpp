// The ssh transport against a real sshd on loopback.
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include <doctest/doctest.h>

#include "launcher/ssh/ssh.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/socket.h"
#include "tests/support/refusing_port.h"
#include "tests/unit/launcher/ssh/ssh_launcher.h"
#include "tests/unit/launcher/transport/recording.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::ssh_loopback_test {
namespace {

using test::has;
using test::kEcho;
using test::kPatience;
using test::make_key;
using test::no_sshd;
using test::RecordingSink;
using test::Sshd;

using Launcher = test::SshLauncher;

TEST_CASE("the agent is pushed once, started twice, and echoes") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config());
  for (const std::size_t pushes : {1U, 0U}) {
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    stream->write("early ");  // queued until the agent runs
    REQUIRE_MESSAGE(launcher.wait([&] { return sink.is_open || sink.closed; }), sink.why());
    REQUIRE_MESSAGE(sink.is_open, sink.why());
    CHECK(sink.progress.size() == pushes);
    CHECK(sink.opened.node_address == "127.0.0.1");
    CHECK(sink.opened.launcher_address == "127.0.0.1");
    stream->write("hello");
    CHECK(launcher.wait([&] { return sink.bytes == "early hello"; }));
    stream->close_input();
    CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
    CHECK(sink.closed->code() == kAgentEnded);
    CHECK(has(sink.why(), "node1: the agent ended (exit status 0)"));
  }
  CHECK(test::list_dir(sshd.cache()).size() == 1);
  CHECK(has(launcher.log.text, "added the new host key ssh-ed25519 SHA256:"));
  CHECK(has(test::read_file(sshd.path("known_hosts")), sshd.known_name() + " ssh-ed25519 "));
}

void check_echo(const Sshd& sshd) {
  Launcher launcher(sshd.write_client_config());
  constexpr std::size_t kChunk = 1'000'003;  // no multiple of any buffer
  constexpr std::size_t kTotal = 50 * kChunk;
  std::string chunk(kChunk, '\0');
  for (std::size_t i = 0; i < kChunk; ++i) {
    chunk[i] = static_cast<char>(i * 31 % 251);
  }
  RecordingSink sink;
  std::size_t at = 0;
  bool is_same = true;
  sink.when_bytes = [&](Bytes more) {
    for (const std::uint8_t byte : more) {
      is_same = is_same && byte == static_cast<std::uint8_t>(chunk[at++ % kChunk]);
    }
  };
  const auto stream = launcher.open(sink);
  for (int i = 0; i < 50; ++i) {
    stream->write(chunk);
  }
  stream->close_input();
  CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(sink.size == kTotal);
  CHECK(is_same);
  CHECK(has(sink.why(), "exit status 0"));
}

TEST_CASE("50 MB go both ways at once, whole and in order") {
  if (!no_sshd()) {
    check_echo(Sshd());
  }
}

TEST_CASE("a server that renews its keys every megabyte does not disturb the stream") {
  if (!no_sshd()) {
    check_echo(Sshd("RekeyLimit 1M"));
  }
}

TEST_CASE("a big agent arrives whole") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config(), kEcho + std::string(3'000'000, '#') + "\n");
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  REQUIRE(launcher.wait([&] { return sink.is_open || sink.closed; }));
  CHECK_MESSAGE(sink.is_open, sink.why());
  REQUIRE(sink.progress.size() == 1);
  CHECK(sink.progress[0] == "pushing the agent (3.0 MB)");
}

TEST_CASE("what a login shell prints first is not taken for the agent") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("ForceCommand echo welcome; printf more; eval \"$SSH_ORIGINAL_COMMAND\"");
  Launcher launcher(sshd.write_client_config());
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  stream->write("x");
  CHECK(launcher.wait([&] { return sink.size > 0 || sink.closed; }));
  CHECK_MESSAGE(sink.bytes == "x", sink.why());
}

TEST_CASE("a login shell that prints without end is told by that, and heard no longer") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("ForceCommand exec yes noise");
  Launcher launcher(sshd.write_client_config());
  CHECK(has(launcher.failure(), "node1: the agent did not start: the login shell printed more than 64 KiB"));
}

TEST_CASE("a login shell that ends without the agent is told with its words") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("ForceCommand echo This account is not available.; echo go away >&2; exit 3");
  Launcher launcher(sshd.write_client_config());
  const std::string why = launcher.failure();
  CHECK(has(why, "node1: the agent did not start: the remote shell ended (exit status 3)"));
  CHECK(has(why, "go away"));
  CHECK(has(why, "This account is not available."));
}

TEST_CASE("an agent that exits or dies is told with its status and its last words") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  for (const auto& [agent, how] :
       {std::pair{"echo dying >&2; exit 7", "(exit status 7): dying"}, std::pair{"kill -KILL $$", "(signal KILL)"}}) {
    Launcher launcher(sshd.write_client_config(),
                      std::string("#!/bin/sh\n[ \"$1\" = serve ] || exit 0\n") + agent + "\n");
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
    CHECK(sink.is_open);
    CHECK(has(sink.why(), how));
  }
}

TEST_CASE("an agent that cannot be executed on the node is an error before it is open") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config(), "#!/no/such/interpreter\n");
  CHECK(has(launcher.failure(), "node1: the agent did not start: cannot execute programs in "));
  CHECK(test::list_dir(sshd.cache()).empty());
}

TEST_CASE("a connection that is cut in the middle is told as such") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config());
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  stream->write("x");
  REQUIRE(launcher.wait([&] { return sink.size > 0; }));
  for (const pid_t pid : sshd.session_pids()) {
    ::kill(pid, SIGKILL);
  }
  CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(sink.closed->code() == Code::kLostPeer);
  CHECK(has(sink.why(), "node1: the connection broke"));
}

TEST_CASE("unknown, accepted and changed host keys") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  {
    Launcher strict(sshd.write_client_config("StrictHostKeyChecking yes"));
    const std::string why = strict.failure();
    CHECK(has(why, "node1: host key verification failed: the host key ssh-ed25519 SHA256:"));
    CHECK(has(why, "to check and accept it, try: ssh -F " + sshd.path("")));
    CHECK(has(why, " node1 true, or set StrictHostKeyChecking accept-new for it"));
  }
  {
    Launcher off(sshd.write_client_config("StrictHostKeyChecking no"));
    RecordingSink sink;
    const auto stream = off.open(sink);
    CHECK(off.wait([&] { return sink.is_open; }));
    CHECK(has(off.log.text, "accepted the unknown host key"));
    CHECK(test::read_file(sshd.path("known_hosts")).empty());
  }
  test::write_file(sshd.path("known_hosts"),
                   "# first line\n" + sshd.known_name() + " " + test::read_file(sshd.path("id_ed25519.pub")));
  Launcher changed(sshd.write_client_config());
  const std::string why = changed.failure();
  CHECK(has(why, "HOST IDENTIFICATION HAS CHANGED"));
  CHECK(has(why, sshd.path("known_hosts") + ":2 "));
  CHECK(has(why, "ssh-keygen -f '" + sshd.path("known_hosts") + "' -R '" + sshd.known_name() + "'"));
}

TEST_CASE("a host with several keys shows the one that known_hosts has") {
  if (no_sshd()) {
    return;
  }
  const test::TempDir keys;
  REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", keys.path("host_ecdsa")}).status == 0);
  const Sshd sshd("HostKey " + keys.path("host_ecdsa"));
  for (const std::string& pub : {keys.path("host_ecdsa.pub"), sshd.path("host_ed25519.pub")}) {
    test::write_file(sshd.path("known_hosts"), sshd.known_name() + " " + test::read_file(pub));
    Launcher launcher(sshd.write_client_config("StrictHostKeyChecking yes"));
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
    CHECK_MESSAGE(sink.is_open, sink.why());
  }
}

TEST_CASE("of several unknown host keys the one is remembered that ssh would take, or that ssh_config asks for") {
  if (no_sshd()) {
    return;
  }
  const test::TempDir keys;
  REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", keys.path("host_ecdsa")}).status == 0);
  const Sshd sshd("HostKey " + keys.path("host_ecdsa"));
  for (const auto& [line, type] :
       {std::pair{"", "ssh-ed25519"}, std::pair{"HostKeyAlgorithms ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"}}) {
    test::write_file(sshd.path("known_hosts"), "");
    Launcher launcher(sshd.write_client_config(line));
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
    CHECK_MESSAGE(sink.is_open, sink.why());
    CHECK(sink.notices.empty());
    CHECK(test::read_file(sshd.path("known_hosts")).starts_with(sshd.known_name() + " " + type + " "));
  }
}

TEST_CASE("a host off port 22 that known_hosts has without the port is known") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const std::string portless = "127.0.0.1 " + test::read_file(sshd.path("host_ed25519.pub"));
  test::write_file(sshd.path("known_hosts"), portless);
  {
    Launcher launcher(sshd.write_client_config("StrictHostKeyChecking yes"));
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
    CHECK_MESSAGE(sink.is_open, sink.why());
    CHECK(sink.notices.empty());
    CHECK(test::read_file(sshd.path("known_hosts")) == portless);
  }
  test::write_file(sshd.path("known_hosts"), "127.0.0.1 " + test::read_file(sshd.path("id_ed25519.pub")));
  Launcher other(sshd.write_client_config("StrictHostKeyChecking yes"));
  CHECK(has(other.failure(), "host key verification failed"));
}

TEST_CASE("the key of a host on loopback is not checked where ssh_config says so, as for the ends of tunnels") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const std::string another = sshd.known_name() + " " + test::read_file(sshd.path("id_ed25519.pub"));
  test::write_file(sshd.path("known_hosts"), another);
  {
    Launcher launcher(sshd.write_client_config("NoHostAuthenticationForLocalhost yes"));
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
    CHECK_MESSAGE(sink.is_open, sink.why());
    CHECK(test::read_file(sshd.path("known_hosts")) == another);
  }
  Launcher named(sshd.write_client_config("NoHostAuthenticationForLocalhost yes\nHostKeyAlias " + sshd.known_name()));
  CHECK(has(named.failure(), "HOST IDENTIFICATION HAS CHANGED"));
}

TEST_CASE("a new host key that cannot be remembered is accepted, and not said to be added") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config("UserKnownHostsFile /proc/nowhere"));
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
  CHECK_MESSAGE(sink.is_open, sink.why());
  CHECK(has(launcher.log.text, "node1: cannot remember the host key in /proc/nowhere: "));
  CHECK(has(launcher.log.text, " is accepted for this time"));
  CHECK(!has(launcher.log.text, "added"));
}

TEST_CASE("a host that refuses is tried again as often as ConnectionAttempts says") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const Fd port(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress any_port = SocketAddress::make("127.0.0.1", 0).value();
  REQUIRE(::bind(port.get(), any_port.raw(), any_port.raw_size()) == 0);
  Launcher launcher(sshd.write_client_config("Host starting\n  HostName 127.0.0.1\n  Port " +
                                             std::to_string(SocketAddress::local_of(port.get()).value().port()) +
                                             "\n  ConnectionAttempts 2\nHost patient\n  HostName 127.0.0.1\n  Port " +
                                             std::to_string(SocketAddress::local_of(port.get()).value().port()) +
                                             "\n  ConnectionAttempts 9\nHost *\n"));
  CHECK(has(launcher.failure("starting"), "is sshd running there?"));
  RecordingSink sink;
  const auto stream = launcher.open(sink, "patient");
  CHECK(!launcher.wait([&] { return sink.closed.has_value(); }, std::chrono::milliseconds(500)));
  REQUIRE(::listen(port.get(), 1) == 0);
  Fd caller;
  CHECK(launcher.wait([&] {
    caller = Fd(::accept(port.get(), nullptr, nullptr));
    return caller.is_open() || sink.closed.has_value();
  }));
  CHECK_MESSAGE(caller.is_open(), sink.why());
}

TEST_CASE("a server without a key of the known type is refused by the system's ssh too") {
  if (no_sshd()) {
    return;
  }
  const test::TempDir keys;
  REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", keys.path("k")}).status == 0);
  const Sshd sshd;
  test::write_file(sshd.path("known_hosts"), sshd.known_name() + " " + test::read_file(keys.path("k.pub")));
  Launcher launcher(sshd.write_client_config("StrictHostKeyChecking yes"));
  const std::string why = launcher.failure();
  CHECK(has(why, "Host key verification failed."));
  CHECK(has(why,
            "a host key of a type that it is known by (ecdsa-sha2-nistp256, see " + sshd.path("known_hosts") + ":1"));
}

TEST_CASE("ECDSA keys log in; refused and unusable keys are named in the error") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  make_key(sshd, "ecdsa", "id_ecdsa");
  make_key(sshd, "ed25519", "id_locked", "secret");
  test::write_file(sshd.path("authorized_keys"), test::read_file(sshd.path("id_ecdsa.pub")));
  {
    Launcher launcher(sshd.write_client_config("IdentityFile " + sshd.path("id_ecdsa")));
    RecordingSink sink;
    const auto stream = launcher.open(sink);
    CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
    CHECK_MESSAGE(sink.is_open, sink.why());
    CHECK(sink.notices.empty());
  }
  Launcher launcher(sshd.write_client_config("IdentityFile " + sshd.path("id_locked")));
  const std::string why = launcher.failure();
  CHECK(has(why, "node1: permission denied for user "));
  CHECK(has(why, sshd.path("id_ed25519") + " (ssh-ed25519)"));
  CHECK(has(why, sshd.path("id_locked") + " (has a passphrase"));
  CHECK(why.find("the system's ssh") == std::string::npos);
}

TEST_CASE("a server that takes a key and asks for more is told as such") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("AuthenticationMethods publickey,keyboard-interactive\nKbdInteractiveAuthentication yes");
  make_key(sshd, "ecdsa", "id_ecdsa");
  for (const char* other : {"id_ecdsa", "id_ed25519"}) {  // the key that it takes is the last one, or the only one
    Launcher launcher(sshd.write_client_config("IdentityFile " + sshd.path(other)));
    const std::string why = launcher.failure();
    CHECK(has(why, "node1: the server took a key of user "));
    CHECK(has(why, "and asks for more (keyboard-interactive), which hvdrun cannot answer; log in by ssh first"));
  }
}

TEST_CASE("a server that asks a question before it takes a key is told as such") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("AuthenticationMethods keyboard-interactive,publickey\nKbdInteractiveAuthentication yes");
  make_key(sshd, "ecdsa", "id_ecdsa");
  Launcher launcher(sshd.write_client_config("IdentityFile " + sshd.path("id_ecdsa")));
  const std::string why = launcher.failure();
  CHECK(has(why, "(the server accepts: keyboard-interactive); it takes no public key, or only after that"));
  CHECK(has(why, "log in by ssh first, with ControlMaster and ControlPath"));
  CHECK(why.find("ssh-copy-id") == std::string::npos);
}

TEST_CASE("without any key the error says so") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::write_file(sshd.path("id_ed25519"), "not a key");
  Launcher launcher(sshd.write_client_config());
  const std::string why = launcher.failure();
  CHECK(has(why, "no usable key was found"));
  CHECK(has(why, sshd.path("id_ed25519") + " (not a private key)"));
}

TEST_CASE("hosts that cannot be reached are told who, what and what to try") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const RefusingPort nobody;
  Launcher launcher(sshd.write_client_config("Host refused\n  HostName 127.0.0.1\n  Port " +
                                             std::to_string(nobody.port()) + "\nHost *\n"));
  CHECK(has(launcher.failure("no-such-host.invalid"),
            "no-such-host.invalid: cannot resolve the host name 'no-such-host.invalid' ("));
  const std::string refused = launcher.failure("refused");
  CHECK(has(refused, "refused: connection to 127.0.0.1 port "));
  CHECK(has(refused, "is sshd running there? try: ssh -F "));
  CHECK(has(launcher.failure("-oProxyCommand=touch"), "is not a host or user name"));
}

TEST_CASE("a broken ssh configuration and a missing agent are told") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::write_file(sshd.path("bad_config"), "NoSuchWord yes\n");
  Launcher broken(sshd.path("bad_config"));
  CHECK(has(broken.failure(), "node1: 'ssh -G' failed: "));
  Launcher missing(sshd.write_client_config());
  missing.options.agent_path = "/no/such/agent";
  CHECK(has(missing.failure(), "node1: cannot read the agent executable '/no/such/agent'"));
}

TEST_CASE("where ssh refuses a user without a name, what it needs is said") {
  const test::TempDir dir;
  test::write_file(dir.path("ssh"), "#!/bin/sh\necho No user exists for uid 1000650000 >&2; exit 255\n", 0700);
  Launcher launcher("");
  launcher.options.environment = {"PATH=" + dir.path() + ":/usr/bin:/bin"};
  CHECK(launcher.failure() ==
        "node1: 'ssh -G' failed: No user exists for uid 1000650000; ssh needs a line for it in /etc/passwd, on this "
        "machine");
}

TEST_CASE("a server that says nothing is given up at the deadline, one that hangs up is tried again until then") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const Fd silent = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const Fd rude = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const auto port_of = [](const Fd& fd) { return std::to_string(SocketAddress::local_of(fd.get()).value().port()); };
  Launcher launcher(sshd.write_client_config("Host silent\n  HostName 127.0.0.1\n  Port " + port_of(silent) +
                                             "\nHost rude\n  HostName 127.0.0.1\n  Port " + port_of(rude) +
                                             "\nHost *\n"));
  int hangups = 0;
  const auto watch = launcher.loop->watch(rude.get(), EPOLLIN, [&](std::uint32_t) {
    hangups += accept_ready(rude.get()).value().is_open() ? 1 : 0;  // as sshd beyond MaxStartups
  });
  REQUIRE(watch.ok());
  std::string why = "'ssh -G' gave no answer";
  // A busy machine may not come to the server within a short limit.
  for (int limit_ms = 4500; has(why, "'ssh -G' gave no answer") && limit_ms < 300'000; limit_ms *= 4) {
    launcher.options.connect_timeout = std::chrono::milliseconds(limit_ms);
    why = launcher.failure("silent");
  }
  CHECK(has(why, "did not finish the key exchange within "));
  CHECK(has(launcher.failure("rude"), "MaxStartups"));
  CHECK(hangups > 1);
}

TEST_CASE("many streams at once go through few handshake slots") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("MaxStartups 2:100:3\nMaxSessions 10");
  Launcher launcher(sshd.write_client_config());
  launcher.options.max_handshakes = 4;  // one more than sshd lets in: the rest is up to the retries
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t i = 0; i < 12; ++i) {
    sinks.push_back(std::make_unique<RecordingSink>());
    streams.push_back(launcher.open(*sinks.back(), "node" + std::to_string(1 + i % 3)));
  }
  const auto open = [&] {
    std::size_t count = 0;
    for (const auto& sink : sinks) {
      count += sink->is_open ? 1U : 0U;
      REQUIRE_MESSAGE(!sink->closed, sink->why());
    }
    return count;
  };
  CHECK(launcher.wait([&] { return open() == streams.size(); }));
  CHECK(test::list_dir(sshd.cache()).size() == 1);
}

TEST_CASE("a stream may be destroyed at any moment, also from within its sink") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config());
  for (int turns = 0; turns < 40; ++turns) {
    RecordingSink sink;
    auto stream = launcher.open(sink);
    stream->write(std::string(100'000, 'x'));
    for (int i = 0; i < turns && !sink.closed && sink.size == 0; ++i) {
      REQUIRE(launcher.loop->turn(Deadline::after(std::chrono::milliseconds(50))).ok());
    }
    stream.reset();
    const bool was_closed = sink.closed.has_value();
    REQUIRE(launcher.loop->turn(Deadline::after(Duration::zero())).ok());
    CHECK(sink.closed.has_value() == was_closed);
  }
  for (const bool at_open : {true, false}) {
    RecordingSink sink;
    auto stream = launcher.open(sink);
    bool is_gone = false;
    const auto end = [&] {
      stream.reset();
      is_gone = true;
    };
    if (at_open) {
      sink.when_open = end;
    } else {
      sink.when_bytes = [&](Bytes) { end(); };
    }
    stream->write("x");
    CHECK(launcher.wait([&] { return is_gone; }));
    CHECK(!sink.closed);
  }
  RecordingSink sink;
  auto stream = launcher.open(sink, "no-such-host.invalid");
  sink.when_closed = [&] { stream.reset(); };
  CHECK(launcher.wait([&] { return stream == nullptr; }));
}

TEST_CASE("a stream outlives its transport") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config());
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  launcher.transport.reset();
  stream->write("x");
  CHECK(launcher.wait([&] { return sink.bytes == "x"; }));
}

TEST_CASE("an open stream on which nothing happens costs no wake-up") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  Launcher launcher(sshd.write_client_config());
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  REQUIRE(launcher.wait([&] { return sink.is_open; }));
  CHECK(test::comes_to_rest(launcher));
}

}  // namespace

}  // namespace hvd::launch::ssh_loopback_test
