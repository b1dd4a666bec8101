// Hosts for which libssh2 does not do are opened by the system's ssh, and only those.
#include <sys/epoll.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/io/socket.h"
#include "tests/unit/launcher/ssh/ssh_launcher.h"
#include "tests/unit/launcher/transport/recording.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::ssh_switch_test {
namespace {

using test::has;
using test::make_key;
using test::no_sshd;
using test::RecordingSink;
using test::Sshd;
using test::SshLauncher;

// Opens node1, sends a word there and back; answers what was said of it.
std::string echo(SshLauncher& launcher) {
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  stream->write("early ");
  REQUIRE_MESSAGE(launcher.wait([&] { return sink.is_open || sink.closed; }), sink.why());
  REQUIRE_MESSAGE(sink.is_open, sink.why());
  stream->write("hello");
  CHECK(launcher.wait([&] { return sink.bytes == "early hello"; }));
  stream->close_input();
  CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(has(sink.why(), "exited with code 0"));
  CHECK(sink.opened.node_address.empty());
  CHECK(sink.opened.named_addresses == std::vector<std::string>{"127.0.0.1"});
  REQUIRE(sink.notices.size() == 1);
  return sink.notices[0];
}

// An sshd that takes an RSA key only; by one that libssh2 can use, tests of libssh2 1.11 would see no switch.
struct RsaOnly {
  Sshd sshd{"PubkeyAcceptedAlgorithms rsa-sha2-512,rsa-sha2-256"};
  RsaOnly() {
    make_key(sshd, "rsa", "id_rsa");
    test::write_file(sshd.path("authorized_keys"), test::read_file(sshd.path("id_rsa.pub")));
  }
  [[nodiscard]] std::string identity() const { return "IdentityFile " + sshd.path("id_rsa"); }
};

bool signs_rsa() {
  const std::string version = ssh_version_text();
  return version.find(" 1.10.") == std::string::npos && version.find(" 1.9.") == std::string::npos;
}

TEST_CASE("an RSA key that libssh2 cannot use is used by the system's ssh, and that is said once") {
  if (no_sshd() || signs_rsa()) {
    return;
  }
  const RsaOnly node;
  SshLauncher launcher(node.sshd.write_client_config(node.identity()));
  CHECK(has(echo(launcher), "using the system's ssh, because libssh2 1."));
  RecordingSink second;
  const auto stream = launcher.open(second, "node2");
  CHECK(launcher.wait([&] { return second.is_open; }));
  CHECK(second.notices.empty());
  CHECK(has(second.progress.empty() ? "" : second.progress[0], "using the system's ssh, because"));
}

TEST_CASE("when the system's ssh is refused too, its words and our own are told") {
  if (no_sshd() || signs_rsa()) {
    return;
  }
  const RsaOnly node;
  test::write_file(node.sshd.path("authorized_keys"), "");
  SshLauncher launcher(node.sshd.write_client_config(node.identity()));
  const std::string why = launcher.failure();
  CHECK(has(why, "node1: the system's ssh exited with code 255: "));
  CHECK(has(why, "Permission denied (publickey)."));
  CHECK(has(why, "the system's ssh is used because libssh2 1."));
  CHECK(has(why, "hvdrun's own try: permission denied for user "));
}

TEST_CASE("a server that hangs up after one key is asked by the system's ssh, whose words say why") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("MaxAuthTries 1");
  test::write_file(sshd.path("authorized_keys"), "");
  SshLauncher launcher(sshd.write_client_config());
  const std::string why = launcher.failure();
  CHECK(has(why, "node1: the system's ssh exited with code 255: "));
  CHECK(has(why, "Too many authentication failures"));
  CHECK(has(why, "because the server closed the connection after one key, and ssh shows what it says"));
  CHECK(has(why, "id_ed25519 (ssh-ed25519); then the server closed the connection; try: ssh "));
}

TEST_CASE("an unknown or changed host key is refused, whatever key logs in") {
  if (no_sshd()) {
    return;
  }
  const RsaOnly node;
  RecordingSink sink;
  {
    SshLauncher strict(node.sshd.write_client_config(node.identity() + "\nStrictHostKeyChecking yes"));
    CHECK(has(strict.failure(sink), "node1: host key verification failed"));
  }
  test::write_file(node.sshd.path("known_hosts"),
                   node.sshd.known_name() + " " + test::read_file(node.sshd.path("id_ed25519.pub")));
  SshLauncher changed(node.sshd.write_client_config(node.identity()));
  CHECK(has(changed.failure(sink), "HOST IDENTIFICATION HAS CHANGED"));
  CHECK(sink.notices.empty());
  CHECK(sink.progress.empty());
}

TEST_CASE("a RemoteCommand in ssh_config is not in the way of ours") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  SshLauncher launcher(sshd.write_client_config(
      "Host node1\n  ProxyJump node2\n  RemoteCommand tmux attach\n  RequestTTY yes\nHost *\n"));
  CHECK(has(echo(launcher), "because ssh_config has 'ProxyJump node2' for it"));
}

TEST_CASE("hosts behind a jump host that drops most connections are reached all the same") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd("MaxStartups 2:100:2");
  SshLauncher launcher(
      sshd.write_client_config("Host node1 node2 node3 node4 node5 node6\n  ProxyJump node7\n"
                               "Host node4 node5 node6 node7\n  HostName 127.0.0.1\nHost *\n"));
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 1; i <= 6; ++i) {
    sinks.push_back(std::make_unique<RecordingSink>());
    streams.push_back(launcher.open(*sinks.back(), "node" + std::to_string(i)));
  }
  for (const auto& sink : sinks) {
    CHECK(launcher.wait([&] { return sink->is_open || sink->closed; }));
    CHECK_MESSAGE(sink->is_open, sink->why());
  }
}

TEST_CASE("a host behind a proxy goes by the system's ssh, with the host key checks of that") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const std::string jump = "Host node1\n  ProxyJump node2\nHost *\n";
  SshLauncher launcher(sshd.write_client_config(jump));
  CHECK(has(echo(launcher), "because ssh_config has 'ProxyJump node2' for it"));
  SshLauncher strict(sshd.write_client_config(
      "Host node1\n  ProxyJump node2\n  HostKeyAlias other\n  StrictHostKeyChecking yes\nHost *\n"));
  CHECK(has(strict.failure(), "Host key verification failed."));
  SshLauncher jumped(sshd.write_client_config("Host node1\n  ProxyJump no-such-bastion.invalid\nHost *\n"));
  const std::string why = jumped.failure();
  CHECK(has(why, "node1: the system's ssh exited with code 255: ssh: Could not resolve hostname no-such-bastion"));
  CHECK(has(why, "the system's ssh is used because ssh_config has 'ProxyJump no-such-bastion.invalid' for it"));
}

// A key exchange that ssh knows and libssh2 does not.
constexpr const char* kForSshOnly = "KexAlgorithms sntrup761x25519-sha512@openssh.com";

bool no_sshd_beyond_libssh2() {
  if (no_sshd()) {
    return true;
  }
  const bool is_known = has(test::run_program({"ssh", "-Q", "kex"}).output, "sntrup761x25519-sha512@openssh.com");
  if (!is_known) {
    MESSAGE("SKIPPED ssh does not know sntrup761x25519-sha512@openssh.com");
  }
  return !is_known;
}

TEST_CASE("a server that shares no algorithm with libssh2 is opened by the system's ssh, which checks its key") {
  if (no_sshd_beyond_libssh2()) {
    return;
  }
  const Sshd sshd(kForSshOnly);
  SshLauncher first(sshd.write_client_config());
  CHECK(has(echo(first), " shares no algorithm with the server"));
  SshLauncher again(sshd.write_client_config("StrictHostKeyChecking yes"));  // its key is known now
  CHECK(has(echo(again), " shares no algorithm with the server"));
  test::write_file(sshd.path("known_hosts"), sshd.known_name() + " " + test::read_file(sshd.path("id_ed25519.pub")));
  SshLauncher changed(sshd.write_client_config());
  const std::string why = changed.failure();
  CHECK(has(why, "Host key verification failed."));
  CHECK(has(why, "hvdrun's own try: "));
}

TEST_CASE("a host that is known by an RSA key only is checked by the system's ssh") {
  if (no_sshd() || signs_rsa()) {
    return;
  }
  const test::TempDir keys;
  REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", keys.path("host_rsa")}).status == 0);
  const Sshd sshd("HostKey " + keys.path("host_rsa"));
  test::write_file(sshd.path("known_hosts"), sshd.known_name() + " " + test::read_file(keys.path("host_rsa.pub")));
  SshLauncher launcher(sshd.write_client_config("StrictHostKeyChecking yes"));
  CHECK(has(echo(launcher), "because libssh2 1."));
}

TEST_CASE("a host with a certificate authority in known_hosts is checked by the system's ssh") {
  if (no_sshd()) {
    return;
  }
  const test::TempDir keys;
  for (const char* name : {"ca", "host"}) {
    REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys.path(name)}).status == 0);
  }
  REQUIRE(test::run_program(
              {"ssh-keygen", "-q", "-s", keys.path("ca"), "-I", "host", "-h", "-n", "127.0.0.1", keys.path("host.pub")})
              .status == 0);
  const Sshd sshd("HostKey " + keys.path("host") + "\nHostCertificate " + keys.path("host-cert.pub"));
  const Sshd bare;  // has no certificate
  const std::string authority = "@cert-authority [127.0.0.1]:* " + test::read_file(keys.path("ca.pub"));
  for (const Sshd* server : {&sshd, &bare}) {
    test::write_file(server->path("known_hosts"), authority);
  }
  SshLauncher launcher(sshd.write_client_config());
  CHECK(has(echo(launcher), "because " + sshd.path("known_hosts") + ":1 has a @cert-authority for it"));
  CHECK(test::read_file(sshd.path("known_hosts")) == authority);  // nothing was taken on trust
  SshLauncher refused(bare.write_client_config("StrictHostKeyChecking yes"));
  CHECK(has(refused.failure(), "Host key verification failed."));
}

TEST_CASE("keys that RevokedHostKeys names are refused by the system's ssh") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::write_file(sshd.path("known_hosts"), sshd.known_name() + " " + test::read_file(sshd.path("host_ed25519.pub")));
  SshLauncher revoked(sshd.write_client_config("RevokedHostKeys " + sshd.path("host_ed25519.pub")));
  const std::string why = revoked.failure();
  CHECK(has(why, "revoked"));
  CHECK(has(why, "because ssh_config has 'RevokedHostKeys " + sshd.path("host_ed25519.pub") + "' for it"));
  SshLauncher other(sshd.write_client_config("RevokedHostKeys " + sshd.path("id_ed25519.pub")));
  CHECK(has(echo(other), "because ssh_config has 'RevokedHostKeys "));
}

TEST_CASE("algorithms that ssh_config leaves out are not used") {
  if (no_sshd_beyond_libssh2()) {
    return;
  }
  const Sshd sshd;
  {
    SshLauncher launcher(sshd.write_client_config(kForSshOnly));
    CHECK(has(echo(launcher), " for it"));
  }
  {
    // Both ends know these, and only the server does not offer them.
    const Sshd picky("Ciphers aes256-ctr");
    SshLauncher launcher(picky.write_client_config("Ciphers aes128-ctr"));
    const std::string why = launcher.failure();
    CHECK(has(why, "no matching cipher found"));
    CHECK(has(why, " shares no algorithm with the server"));
  }
  SshLauncher unauthenticated(sshd.write_client_config("PubkeyAuthentication no"));
  const std::string why = unauthenticated.failure();
  CHECK(has(why, "Permission denied"));
  CHECK(has(why, "because ssh_config has 'PubkeyAuthentication "));
}

TEST_CASE("a server that speaks nonsense is told in the words of both") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const int port = SocketAddress::local_of(listener.get()).value().port();
  SshLauncher launcher(sshd.write_client_config("Host node1\n  Port " + std::to_string(port) + "\nHost *\n"));
  std::vector<Fd> talking;  // held open: a server that hangs up is tried again
  const auto watch = launcher.loop->watch(listener.get(), EPOLLIN, [&](std::uint32_t) {
    if (Fd caller = accept_ready(listener.get()).value(); caller.is_open()) {
      const std::string words = "SSH-2.0-nonsense\r\n" + std::string(256, '\xff');
      CHECK(::write(caller.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()));
      talking.push_back(std::move(caller));
    }
  });
  REQUIRE(watch.ok());
  const std::string why = launcher.failure();
  CHECK(has(why, "node1: the system's ssh exited with code 255: "));
  CHECK(has(why, " found no session with the server; hvdrun's own try: no ssh session with 127.0.0.1 port "));
  CHECK(talking.size() == 2);
}

TEST_CASE("a key with a certificate is shown by the system's ssh") {
  if (no_sshd()) {
    return;
  }
  const test::TempDir keys;
  REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys.path("ca")}).status == 0);
  const Sshd sshd("TrustedUserCAKeys " + keys.path("ca.pub"));
  test::write_file(sshd.path("authorized_keys"), "");
  SshLauncher launcher(sshd.write_client_config());
  CHECK(has(launcher.failure(), "node1: permission denied for user "));
  REQUIRE(test::run_program({"ssh-keygen", "-q", "-s", keys.path("ca"), "-I", "me", "-n", LocalUser::current().name,
                             sshd.path("id_ed25519.pub")})
              .status == 0);
  CHECK(has(echo(launcher), " cannot show the certificate " + sshd.path("id_ed25519-cert.pub")));
}

TEST_CASE("a connection that stands open is used, and outlives ours") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const std::string control = sshd.path("control");
  const std::string config = sshd.write_client_config("ControlPath " + control);
  REQUIRE(test::run_program({"ssh", "-F", config, "-M", "-N", "-f", "node1"}).status == 0);
  test::write_file(sshd.path("authorized_keys"), "");  // no other way in
  SshLauncher launcher(config);
  CHECK(has(echo(launcher), "because a connection to it stands open at its ControlPath " + control));
  CHECK(test::run_program({"ssh", "-F", config, "-O", "exit", "node1"}).status == 0);
}

TEST_CASE("a stream that has switched may be destroyed at any moment, also from within its sink") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  SshLauncher launcher(sshd.write_client_config("ControlPath " + sshd.path("known_hosts.sock")));
  const Fd socket = listen_unix(sshd.path("known_hosts.sock")).value();  // a master that never answers
  for (int turns = 0; turns < 8; ++turns) {
    RecordingSink sink;
    auto stream = launcher.open(sink);
    for (int i = 0; i < turns && !sink.closed; ++i) {
      REQUIRE(launcher.loop->turn(Deadline::after(std::chrono::milliseconds(100))).ok());
    }
    stream.reset();
    const bool was_closed = sink.closed.has_value();
    REQUIRE(launcher.loop->turn(Deadline::after(Duration::zero())).ok());
    CHECK(sink.closed.has_value() == was_closed);
  }
}

}  // namespace

}  // namespace hvd::launch::ssh_switch_test
