// ssh-agent: a real one, one that is silent, and ones that answer with anything.
#include "launcher/ssh/key_agent.h"

#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launcher/ssh/key_file.h"
#include "launcher/ssh/ssh_wire.h"
#include "tests/unit/launcher/ssh/ssh_launcher.h"

namespace hvd::launch::key_agent_test {
namespace {

using test::has;
using test::kPatience;
using test::no_sshd;
using test::RecordingSink;
using test::Sshd;

// The real program, with one key.
class RealAgent {
 public:
  RealAgent(const Sshd& sshd, const std::string& key) : socket_(sshd.path("agent.sock")) {
    std::string words[] = {"ssh-agent", "-D", "-a", socket_};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", 1, 0);
    REQUIRE(::posix_spawnp(&pid_, "ssh-agent", &files, nullptr, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&files);
    const Deadline deadline = Deadline::after(kPatience);
    while (!connect_unix(socket_, deadline).ok() && !deadline.has_passed()) {
    }
    const std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "SSH_AUTH_SOCK=" + socket_};
    REQUIRE(test::run_program({"ssh-add", key}, "", environment).status == 0);
  }
  ~RealAgent() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  RealAgent(const RealAgent&) = delete;
  RealAgent& operator=(const RealAgent&) = delete;
  [[nodiscard]] const std::string& socket() const { return socket_; }

 private:
  std::string socket_;
  pid_t pid_ = -1;
};

// One that takes connections on the launcher's loop and does what the test says with what comes.
class ScriptedAgent {
 public:
  using Answer = std::function<void(int fd, const std::string& request)>;
  ScriptedAgent(test::SshLauncher& launcher, const std::string& path, Answer answer)
      : launcher_(launcher), answer_(std::move(answer)), listener_(listen_unix(path).value()) {
    watch_ = launcher_.loop->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); }).value();
  }
  ~ScriptedAgent() {
    for (const WatchId id : callers_) {
      launcher_.loop->unwatch(id);
    }
    launcher_.loop->unwatch(watch_);
  }
  ScriptedAgent(const ScriptedAgent&) = delete;
  ScriptedAgent& operator=(const ScriptedAgent&) = delete;

 private:
  void accept() {
    fds_.push_back(accept_ready(listener_.get()).value());
    const int fd = fds_.back().get();
    callers_.push_back(launcher_.loop
                           ->watch(fd, EPOLLIN,
                                   [this, fd, at = callers_.size()](std::uint32_t) {
                                     char buffer[4096];
                                     const ssize_t got = ::read(fd, buffer, sizeof buffer);
                                     if (got <= 0) {
                                       launcher_.loop->unwatch(callers_[at]);
                                       return;
                                     }
                                     answer_(fd, std::string(buffer, static_cast<std::size_t>(got)));
                                   })
                           .value());
  }
  test::SshLauncher& launcher_;
  Answer answer_;
  Fd listener_;
  WatchId watch_ = 0;
  std::vector<Fd> fds_;
  std::vector<WatchId> callers_;
};

void put(int fd, const std::string& text) {
  CHECK(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

void check_opens(test::SshLauncher& launcher) {
  RecordingSink sink;
  const auto stream = launcher.open(sink);
  CHECK(launcher.wait([&] { return sink.is_open || sink.closed; }));
  CHECK_MESSAGE(sink.is_open, sink.why());
}

void protect(const Sshd& sshd) {
  REQUIRE(
      test::run_program({"ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", sshd.path("id_ed25519")}).status ==
      0);
}

std::string blob_of(const Sshd& sshd) {
  return read_key_file(sshd.path("id_ed25519")).value().public_blob;
}

}  // namespace

TEST_CASE("keys of ssh-agent log in, also one whose file has a passphrase, or is only half here") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  const RealAgent agent(sshd, sshd.path("id_ed25519"));
  protect(sshd);
  test::SshLauncher launcher(sshd.write_client_config("IdentityAgent " + agent.socket()));
  check_opens(launcher);
  const std::string file = sshd.path("id_ed25519");
  ::unlink(file.c_str());
  test::SshLauncher beside(sshd.write_client_config("IdentityAgent " + agent.socket()));
  check_opens(beside);
  ::rename((file + ".pub").c_str(), sshd.path("elsewhere.pub").c_str());
  test::SshLauncher named(
      sshd.write_client_config("IdentityAgent " + agent.socket() + "\nIdentityFile " + sshd.path("elsewhere.pub")));
  check_opens(named);
}

TEST_CASE("an RSA key of ssh-agent signs in the way that the server takes, or ssh does it") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::make_key(sshd, "rsa", "id_rsa");
  test::write_file(sshd.path("authorized_keys"), test::read_file(sshd.path("id_rsa.pub")));
  const RealAgent agent(sshd, sshd.path("id_rsa"));
  test::SshLauncher launcher(
      sshd.write_client_config("IdentityAgent " + agent.socket() + "\nIdentityFile " + sshd.path("id_rsa.pub")));
  check_opens(launcher);
}

TEST_CASE("a certificate that only ssh-agent has is shown by the system's ssh") {
  if (no_sshd()) {
    return;
  }
  for (const char* kind : {"ed25519", "ecdsa", "rsa"}) {
    CAPTURE(kind);
    const test::TempDir keys;
    REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys.path("ca")}).status == 0);
    const Sshd sshd("TrustedUserCAKeys " + keys.path("ca.pub"));
    test::write_file(sshd.path("authorized_keys"), "");
    REQUIRE(test::run_program({"ssh-keygen", "-q", "-t", kind, "-N", "", "-f", keys.path("own")}).status == 0);
    REQUIRE(test::run_program({"ssh-keygen", "-q", "-s", keys.path("ca"), "-I", "me", "-n", LocalUser::current().name,
                               keys.path("own.pub")})
                .status == 0);
    const RealAgent agent(sshd, keys.path("own"));
    test::SshLauncher launcher(sshd.write_client_config("IdentitiesOnly no\nIdentityAgent " + agent.socket()));
    check_opens(launcher);
  }
}

TEST_CASE("an agent that never says which keys it has holds nobody up") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::SshLauncher launcher(sshd.write_client_config("IdentityAgent " + sshd.path("mute")));
  int asked = 0;
  int ticks = 0;
  int ticks_before = 0;
  const ScriptedAgent mute(launcher, sshd.path("mute"), [&](int, const std::string&) {
    ++asked;
    ticks_before = ticks;
  });
  const std::function<void()> tick = [&] {
    ++ticks;
    launcher.loop->after(std::chrono::milliseconds(10), tick);
  };
  tick();
  check_opens(launcher);  // by the file
  CHECK(asked == 1);
  CHECK(ticks > ticks_before + 2);  // the loop went on meanwhile
  check_opens(launcher);
  CHECK(asked == 1);  // the next does not wait for it, too
  launcher.clock.jumped += std::chrono::minutes(1);
  check_opens(launcher);
  CHECK(asked == 2);
}

TEST_CASE("an agent whose user does not confirm is named at the deadline; one that refuses, with its key") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::SshLauncher launcher(sshd.write_client_config("IdentityAgent " + sshd.path("slow")));
  const std::string keys =
      wire_text(std::string(1, 12) + wire_number(1) + wire_text(blob_of(sshd)) + wire_text("mine"));
  protect(sshd);
  bool refuses = false;
  const ScriptedAgent slow(launcher, sshd.path("slow"), [&](int fd, const std::string& request) {
    if (request.at(4) == 11) {
      put(fd, keys.substr(0, 7));  // in pieces
      put(fd, keys.substr(7));
    } else if (refuses) {
      put(fd, wire_text(std::string(1, 5)));
    } else {
      launcher.clock.jumped += launcher.options.answer_time;  // in which the user has done nothing
    }
  });
  CHECK(has(launcher.failure(),
            "ssh-agent key mine has not signed within 240 s; does the agent wait for a confirmation"));
  refuses = true;
  CHECK(has(launcher.failure(), "ssh-agent key mine (ssh-agent refused to sign)"));
}

TEST_CASE("an agent that is gone, or answers with anything, is told and passed by") {
  if (no_sshd()) {
    return;
  }
  const Sshd sshd;
  test::write_file(sshd.path("authorized_keys"), "");
  test::SshLauncher gone(sshd.write_client_config("IdentityAgent " + sshd.path("none")));
  CHECK(has(gone.failure(), "ssh-agent at " + sshd.path("none") + " (connecting: No such file or directory"));
  const std::pair<std::string, const char*> answers[] = {
      {wire_number(0), "no answer"},
      {wire_number(0x7fffffff), "no answer"},
      {wire_text(std::string(1, 12) + wire_number(0xffffffff)), "no answer"},
      {wire_text(std::string(1, 5)), "does not list its keys"},
      {"", "closed the connection"},
  };
  for (const auto& [bytes, told] : answers) {
    test::SshLauncher launcher(sshd.write_client_config("IdentityAgent " + sshd.path("odd")));
    const ScriptedAgent odd(launcher, sshd.path("odd"), [&, text = bytes](int fd, const std::string&) {
      text.empty() ? static_cast<void>(::shutdown(fd, SHUT_RDWR)) : put(fd, text);
    });
    const std::string why = launcher.failure();
    CAPTURE(why);
    CHECK(has(why, told));
    ::unlink(sshd.path("odd").c_str());
  }
}

}  // namespace hvd::launch::key_agent_test
