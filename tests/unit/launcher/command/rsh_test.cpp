// The rsh transport, by commands of this machine in the place of ssh.
#include "launcher/command/rsh.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/unit/launcher/transport/recording.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::rsh_test {
namespace {

using test::has;
using test::RecordingLog;
using test::RecordingSink;

// Generous: these tests also run on machines that are busy with something else.
constexpr Duration kPatience = std::chrono::seconds(300);
constexpr const char* kEcho = "#!/bin/sh\n[ \"$1\" = serve ] || exit 0\nexec cat\n";

// A launcher, and "nodes" that are environments of this machine.
struct Launcher {
  test::TempDir dir;
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  RecordingLog log;
  RshOptions options;
  std::unique_ptr<Transport> transport;
  std::string mark = "HVD_TEST_MARK=" + dir.path();  // in the environment of all that is started

  explicit Launcher(const std::string& agent = kEcho) {
    ::signal(SIGPIPE, SIG_IGN);  // as hvdrun does
    test::write_file(dir.path("agent"), agent, 0700);
    std::filesystem::create_directory(dir.path("bin"));
    options.settings.agent_path = dir.path("agent");
    options.settings.answer_time = kPatience;
    options.settings.environment = {"PATH=/usr/bin:/bin", "HOME=" + dir.path("home"), mark};
  }
  ~Launcher() {
    transport.reset();
    CHECK(poll([this] { return processes().empty(); }));  // killed, but perhaps not quite gone
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  std::unique_ptr<Stream> open(StreamSink& sink, const std::string& command, const std::string& host = "node1") {
    transport = make_rsh_transport(*loop, RshTemplate::parse(command).value(), options, log);
    return transport->open({host, "", 0}, sink);
  }
  bool wait(const std::function<bool()>& condition, Duration patience = kPatience) const {
    const Deadline deadline = Deadline::after(patience);
    while (!condition()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(deadline).ok());
    }
    return true;
  }
  // For conditions that no event of the loop tells.
  bool poll(const std::function<bool()>& condition) const {
    const Deadline deadline = Deadline::after(kPatience);
    while (!condition()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(20))).ok());
    }
    return true;
  }
  // Opens a stream that must fail; answers why.
  std::string failure(const std::string& command, const std::string& host = "node1") {
    RecordingSink sink;
    const auto stream = open(sink, command, host);
    CHECK(wait([&] { return sink.closed.has_value(); }));
    CHECK(!sink.is_open);
    CHECK(sink.why().find('\n') == std::string::npos);
    return sink.why();
  }
  // What was started from here and is still there, zombies included.
  [[nodiscard]] std::vector<std::string> processes() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      const bool is_number = pid.find_first_not_of("0123456789") == std::string::npos;
      const std::string status = is_number ? test::read_file("/proc/" + pid + "/status") : "";
      const bool is_zombie = status.find("\nState:\tZ") != std::string::npos &&
                             status.find("\nPPid:\t" + std::to_string(::getpid()) + "\n") != std::string::npos;
      if (is_zombie || (is_number && test::read_file("/proc/" + pid + "/environ").find(mark) != std::string::npos)) {
        found.push_back(pid + " " + test::read_file("/proc/" + pid + "/cmdline"));
      }
    }
    return found;
  }
  // A "node" whose sh is this program.
  std::string with_shell(const std::string& shell) {
    std::filesystem::remove(dir.path("bin/sh"));
    std::filesystem::create_symlink(shell, dir.path("bin/sh"));
    return "env NODE={host} PATH=" + dir.path("bin") + ":/usr/bin:/bin";
  }
};

void check_echo(Launcher& launcher, const std::string& command, std::size_t pushes) {
  RecordingSink sink;
  const auto stream = launcher.open(sink, command);
  stream->write("early ");  // queued until the agent runs
  REQUIRE_MESSAGE(launcher.wait([&] { return sink.is_open || sink.closed; }), sink.why());
  REQUIRE_MESSAGE(sink.is_open, sink.why());
  CHECK(sink.progress.size() == pushes);
  CHECK(!sink.opened.is_local);
  CHECK(sink.opened.node_address.empty());
  stream->write("hello");
  CHECK(launcher.wait([&] { return sink.bytes == "early hello"; }));
  stream->close_input();
  CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(sink.closed->code() == Code::kLostPeer);
  CHECK(has(sink.why(), "node1: the agent ended, or the way to it broke: rsh: "));
  CHECK(has(sink.why(), " exited with code 0"));
}

TEST_CASE("the agent is pushed once and echoes, whatever shell the node's sh is") {
  int tried = 0;
  for (const char* shell : {"/bin/dash", "/bin/bash", "/bin/busybox", "/usr/bin/ksh", "/bin/zsh"}) {
    if (test::file_exists(shell)) {
      ++tried;
      CAPTURE(shell);
      Launcher launcher;
      const std::string command = launcher.with_shell(shell);
      check_echo(launcher, command, 1);
      check_echo(launcher, command, 0);
    }
  }
  CHECK(tried >= 2);
}

TEST_CASE("a command that joins its words for a shell is the same as one that executes them") {
  Launcher launcher;
  check_echo(launcher, "bash -c 'shift; eval \"$*\"' ssh", 1);          // as ssh does
  check_echo(launcher, "sh -c 'shift; exec \"$@\"' kubectl", 0);        // as kubectl exec does
  check_echo(launcher, "sh -c 'shift; \"$@\"; exit $?' wrapper", 0);    // a process between
  check_echo(launcher, "sh -c 'shift; \"$@\" | cat' relay {host}", 0);  // and one behind
}

TEST_CASE("a big agent, and bytes both ways, arrive whole") {
  Launcher launcher(kEcho + std::string(3'000'000, '#') + "\n");
  std::string chunk(1'000'003, '\0');
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    chunk[i] = static_cast<char>(i * 31 % 251);
  }
  RecordingSink sink;
  std::size_t at = 0;
  bool is_same = true;
  sink.when_bytes = [&](Bytes more) {
    for (const std::uint8_t byte : more) {
      is_same = is_same && byte == static_cast<std::uint8_t>(chunk[at++ % chunk.size()]);
    }
  };
  const auto stream = launcher.open(sink, "env NODE={host}");
  for (int i = 0; i < 20; ++i) {
    stream->write(chunk);
  }
  stream->close_input();
  CHECK(launcher.wait([&] { return sink.closed.has_value(); }));
  CHECK(sink.is_open);
  CHECK(sink.progress == std::vector<std::string>{"pushing the agent (3.0 MB)"});
  CHECK(sink.size == 20 * chunk.size());
  CHECK(is_same);
}

TEST_CASE("what is printed before the agent runs is skipped; a terminal in between is told") {
  Launcher launcher;
  check_echo(launcher, "sh -c 'shift; echo welcome; printf more; exec \"$@\"' x", 1);
  CHECK(has(launcher.failure("sh -c 'shift; printf \"HVDRUN-NEED\\r\\n\"; exec cat >/dev/null' x"),
            "node1: the agent did not start: the way to the node goes through a terminal"));
}

TEST_CASE("a host's name is a hint at its addresses") {
  Launcher launcher;
  RecordingSink sink;
  const auto stream = launcher.open(sink, "env NODE={host}", "127.0.0.7");
  CHECK(launcher.wait([&] { return sink.is_open; }));
  CHECK(sink.opened.named_addresses == std::vector<std::string>{"127.0.0.7"});
}

TEST_CASE("a command that is not there is told by name") {
  Launcher launcher;
  CHECK(has(launcher.failure("no-such-program -x {host}"),
            "node1: rsh: no-such-program -x node1: no such program: 'no-such-program' in PATH (/usr/bin:/bin)"));
  const auto command = RshTemplate::parse("no-such-program -x").value();
  const auto checked = check_rsh_program(command, launcher.options.settings.environment);
  REQUIRE(!checked.ok());
  CHECK(checked.error().message() == "--rsh: no such program: 'no-such-program' in PATH (/usr/bin:/bin)");
  CHECK(check_rsh_program(RshTemplate::parse("env x").value(), launcher.options.settings.environment).ok());
}

TEST_CASE("a command that ends without an agent is told with its last words") {
  Launcher launcher;
  const std::string why = launcher.failure("sh -c 'echo noise; printf \"one\\ntwo\\nthree\\nfour.\\n\" >&2; exit 9' x");
  CHECK(has(why, "node1: rsh: sh -c "));
  CHECK(has(why, " exited with code 9: two; three; four.; it printed: noise"));
  CHECK(has(launcher.log.text, "node1 (standard error): one\n"));
  CHECK(has(launcher.failure("sh -c 'kill -KILL $$' x"), "was killed by signal 9 (SIGKILL)"));
  CHECK(has(launcher.failure("sh -c 'exec >/dev/null; exec sleep 1000' x"), "closed its output"));
}

TEST_CASE("a node that refuses the agent is told with the script's words") {
  Launcher launcher("#!/no/such/interpreter\n");
  CHECK(has(launcher.failure("env NODE={host}"), "node1: the agent did not start: cannot execute programs in "));
}

// An ssh that says `words` and ends with `code` as long as it was not tried `times` times before; then it works.
std::string failing_ssh(const Launcher& launcher, int times, const std::string& words, int code = 255,
                        const std::string& output = "") {
  const std::string tries = launcher.dir.path("tries");
  test::write_file(tries, "");
  test::write_file(launcher.dir.path("words"), words);
  test::write_file(launcher.dir.path("ssh"),
                   "#!/bin/sh\necho try >>" + tries + "\n[ $(wc -l <" + tries + ") -gt " + std::to_string(times) +
                       " ] || { printf '" + output + "'; cat " + launcher.dir.path("words") + " >&2; exit " +
                       std::to_string(code) + "; }\nshift\nexec \"$@\"\n",
                   0700);
  return launcher.dir.path("ssh");
}

std::size_t tries_of(const Launcher& launcher) {
  const std::string tries = test::read_file(launcher.dir.path("tries"));
  return static_cast<std::size_t>(std::count(tries.begin(), tries.end(), '\n'));
}

constexpr const char* kDropped =
    "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535\r\n";

TEST_CASE("a connection that the server drops before the login is tried again") {
  Launcher launcher;
  const std::string ssh = failing_ssh(launcher, 2, kDropped);
  RecordingSink sink;
  const auto stream = launcher.open(sink, ssh);
  stream->write("early ");
  CHECK(launcher.wait([&] { return sink.closed || sink.bytes == "early "; }));
  CHECK_MESSAGE(sink.is_open, sink.why());
  CHECK(tries_of(launcher) == 3);
  CHECK(sink.progress == std::vector<std::string>{"the connection was dropped before the login; trying again",
                                                  "pushing the agent (0.0 MB)"});
}

TEST_CASE("a failure that is no drop, or may be the server's rule, is not tried for ever") {
  struct Case {
    std::string words;
    int code;
    std::string output;
    std::size_t tries;
  };
  const std::string closed = "Connection closed by 10.0.0.1 port 22\r\n";
  for (const Case& each :
       {Case{"ssh: connect to host node1 port 22: Connection refused\r\n", 255, "", 1},
        Case{"ada@bastion: Permission denied (publickey).\r\n" + std::string(kDropped), 255, "", 1},
        Case{kDropped, 1, "", 1}, Case{kDropped, 255, "a word", 1}, Case{"", 255, "", 1}, Case{closed, 255, "", 4}}) {
    CAPTURE(each.words);
    Launcher launcher;
    const std::string why = launcher.failure(failing_ssh(launcher, 99, each.words, each.code, each.output));
    CHECK(tries_of(launcher) == each.tries);
    CHECK(has(why, " exited with code " + std::to_string(each.code)));
    const bool is_told = why.find(
                             "; before, 3 connections were dropped before the login (too many at once? see "
                             "MaxStartups") != std::string::npos;
    CHECK(is_told == (each.tries == 4));
  }
}

TEST_CASE("connections that are always dropped are given up at the deadline, which the tries do not move") {
  Launcher launcher;
  launcher.options.settings.answer_time = std::chrono::milliseconds(2500);
  const std::string why = launcher.failure(failing_ssh(launcher, 1'000'000, kDropped));
  CHECK(has(why, "gave no answer within 2.5 s; try it by hand"));
  CHECK(tries_of(launcher) < 30);  // as there were without any waiting
  // A busy machine may not get to the end of the first.
  CHECK((has(why, " dropped before the login (too many at once?") || tries_of(launcher) <= 1));
}

TEST_CASE("a stream may be destroyed while it waits to try again, also from within its sink") {
  Launcher launcher;
  RecordingSink sink;
  auto stream = launcher.open(sink, failing_ssh(launcher, 99, kDropped));
  CHECK(launcher.poll([&] { return !sink.progress.empty(); }));
  stream.reset();
  CHECK(launcher.poll([&] { return launcher.processes().empty(); }));
  const std::size_t tries = tries_of(launcher);
  REQUIRE(launcher.loop->turn(Deadline::after(std::chrono::milliseconds(300))).ok());  // longer than the first wait
  CHECK(tries_of(launcher) == tries);
  RecordingSink other;
  stream = launcher.open(other, failing_ssh(launcher, 99, kDropped));
  other.when_progress = [&] { stream.reset(); };
  CHECK(launcher.wait([&] { return stream == nullptr; }));
  CHECK(!other.closed);
}

TEST_CASE("noise without end is given up, and its program ended") {
  Launcher launcher;
  CHECK(has(launcher.failure("sh -c 'exec yes' x"), "printed more than 64 KiB before the agent started"));
}

TEST_CASE("a command that gives no answer is ended at the deadline, with its words") {
  Launcher launcher;
  std::string why;
  // A busy machine may not come to the words within a short limit.
  for (int limit_ms = 1500; !has(why, ": waiting for godot") && limit_ms < 300'000; limit_ms *= 4) {
    launcher.options.settings.answer_time = std::chrono::milliseconds(limit_ms);
    why = launcher.failure("sh -c 'echo waiting for godot >&2; exec sleep 1000' x");
    CHECK(has(why, "gave no answer within "));
  }
  CHECK(has(why, "; try it by hand: waiting for godot"));
}

TEST_CASE("a host that would be an option never reaches the command") {
  Launcher launcher;
  CHECK(has(launcher.failure("env", "-i"), "'-i' is not a host or user name"));
}

TEST_CASE("a destroyed stream leaves no process, not even one that does not want to end") {
  for (const char* command : {"env NODE={host}", "sh -c 'trap \"\" TERM; while :; do sleep 1000; done' x",
                              "sh -c 'sleep 1000 & sleep 1000; exit' x"}) {
    CAPTURE(command);
    Launcher launcher;
    RecordingSink sink;
    auto stream = launcher.open(sink, command);
    CHECK(launcher.poll([&] { return sink.is_open || launcher.processes().size() > 1; }));
    stream.reset();
    CHECK(launcher.poll([&] { return launcher.processes().empty(); }));
    CHECK(!sink.closed);
    // A second one, and no loop that turns: the end of the transport waits for it.
    stream = launcher.open(sink, command);
    CHECK(launcher.poll([&] { return !launcher.processes().empty(); }));
    stream.reset();
  }
}

TEST_CASE("a stream may be destroyed at any moment, also from within its sink") {
  Launcher launcher;
  for (int turns = 0; turns < 12; ++turns) {
    RecordingSink sink;
    auto stream = launcher.open(sink, "env NODE={host}", "127.0.0.1");
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
    auto stream = launcher.open(sink, "env NODE={host}");
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
  auto stream = launcher.open(sink, "false");
  sink.when_closed = [&] { stream.reset(); };
  CHECK(launcher.wait([&] { return stream == nullptr; }));
}

TEST_CASE("many commands at once go through few handshake slots") {
  Launcher launcher;
  launcher.options.settings.max_handshakes = 2;
  // Each notes how many of them are on their way.
  const std::string command = "sh -c 'shift; echo >>" + launcher.dir.path("on-way") + "/$$; ls " +
                              launcher.dir.path("on-way") + " | wc -l >>" + launcher.dir.path("counts") + "; rm " +
                              launcher.dir.path("on-way") + "/$$; exec \"$@\"' x {host}";
  std::filesystem::create_directory(launcher.dir.path("on-way"));
  launcher.transport =
      make_rsh_transport(*launcher.loop, RshTemplate::parse(command).value(), launcher.options, launcher.log);
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) {
    sinks.push_back(std::make_unique<RecordingSink>());
    streams.push_back(launcher.transport->open({"127.0.0." + std::to_string(i + 1), "", 0}, *sinks.back()));
  }
  const auto all_open = [&] {
    std::size_t open = 0;
    for (const auto& sink : sinks) {
      REQUIRE_MESSAGE(!sink->closed, sink->why());
      open += sink->is_open ? 1U : 0U;
    }
    return open == sinks.size();
  };
  CHECK(launcher.wait(all_open));
  std::ifstream counts(launcher.dir.path("counts"));
  int lines = 0;
  for (int count = 0; counts >> count; ++lines) {
    CHECK(count <= 2);
  }
  CHECK(lines == 8);
}

TEST_CASE("an open stream on which nothing happens costs no wake-up") {
  Launcher launcher;
  RecordingSink sink;
  const auto stream = launcher.open(sink, "env NODE={host}");
  REQUIRE(launcher.wait([&] { return sink.is_open; }));
  CHECK(test::comes_to_rest(launcher));
}

}  // namespace

}  // namespace hvd::launch::rsh_test
