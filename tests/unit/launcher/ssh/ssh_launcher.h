// What tests of the ssh transport against a real sshd share.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "launcher/ssh/ssh.h"
#include "launcher/transport/ssh_config.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/socket.h"
#include "tests/support/jumping_clock.h"
#include "tests/unit/launcher/transport/recording.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::test {

// Generous: these tests also run on machines that are busy with something else.
inline constexpr Duration kPatience = std::chrono::seconds(300);
inline constexpr const char* kEcho = "#!/bin/sh\n[ \"$1\" = serve ] || exit 0\nexec cat\n";

// A launcher: loop, transport, agent file.
struct SshLauncher {
  TempDir dir;
  hvd::test::JumpingClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  RecordingLog log;
  SshOptions options;
  std::unique_ptr<Transport> transport;

  explicit SshLauncher(const std::string& config, const std::string& agent = kEcho) {
    write_file(dir.path("agent"), agent, 0700);
    options.agent_path = dir.path("agent");
    options.config_file = config;
    options.connect_timeout = std::chrono::seconds(240);
    options.answer_time = std::chrono::seconds(240);
    ::signal(SIGPIPE, SIG_IGN);  // as hvdrun does
    for (char** entry = environ; *entry != nullptr; ++entry) {
      options.environment.emplace_back(*entry);
    }
  }
  std::unique_ptr<Stream> open(StreamSink& sink, const std::string& host = "node1") {
    if (transport == nullptr) {
      transport = make_ssh_transport(*loop, options, log);
    }
    return transport->open({host, "", 0}, sink);
  }
  bool wait(const std::function<bool()>& condition, Duration patience = kPatience) const {
    const Deadline deadline = Deadline::after(patience);
    while (!condition()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(Deadline(deadline.at() + clock.jumped)).ok());
    }
    return true;
  }
  // Opens a stream that must fail; answers why.
  std::string failure(const std::string& host = "node1") {
    RecordingSink sink;
    return failure(sink, host);
  }
  std::string failure(RecordingSink& sink, const std::string& host = "node1") {
    sink.closed.reset();
    const auto stream = open(sink, host);
    CHECK(wait([&] { return sink.closed.has_value(); }));
    CHECK(!sink.is_open);
    CHECK(sink.why().find('\n') == std::string::npos);
    return sink.why();
  }
};

inline bool no_sshd() {
  static const std::string reason = Sshd::missing();
  if (!reason.empty()) {
    MESSAGE("SKIPPED " << reason);
  }
  return !reason.empty();
}

inline void make_key(const Sshd& sshd, const char* kind, const std::string& name, const char* passphrase = "") {
  test::run_program({"ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", sshd.path(name)});
}

}  // namespace hvd::launch::test
