#include "launcher/transport/agent_push.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include <doctest/doctest.h>

#include "launcher/process/own_process.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::agent_push_test {
namespace {

using test::TempDir;
using Event = AgentGreeting::Event;

constexpr const char* kAgentText = "#!/bin/sh\n[ \"$1\" = serve ] || exit 0\necho agent here\ncat\n";

// One node: a home directory and the script that the login shell would get, run by the local sh.
struct Node {
  TempDir dir;
  AgentImage image;
  std::string shell = "sh";  // of drive()

  Node() {
    test::write_file(dir.path("agent"), kAgentText);
    image = load_agent_images(dir.path("agent")).value().all.front();
  }
  [[nodiscard]] test::Ran start(const std::string& input, const std::string& by = "/bin/sh") const {
    return test::run_program({by, "-c", agent_start_command({{image}})}, input,
                             {"PATH=/usr/bin:/bin", "HOME=" + dir.path("home"), "TMPDIR=" + dir.path("tmp")});
  }
  [[nodiscard]] std::string cache() const { return dir.path("home/.cache/hvdrun"); }
  [[nodiscard]] std::string name() const { return "agent-" + image.sha256; }

  // A bash program about several pushers. It has: $start, the command; push, one whole push, which prints what the
  // command does; and slow, which starts one in a process group of its own, whose input stays open at 3, and waits
  // until it asks for the agent; its output is in `slow`.
  [[nodiscard]] test::Ran drive(const std::string& program, const std::vector<std::string>& before = {}) const {
    test::write_file(
        dir.path("drive"),
        "set -m; cd \"$DIR\" || exit; exec 2>/dev/null; start=$(cat start)\n"
        "push() { $SH -c \"$start\" <agent; }\n"
        "slow() { rm -f slow in; mkfifo in; $SH -c \"$start\" <in >slow 2>&1 & exec 3>in\n"
        "  for i in {1..3000}; do grep -q NEED slow && return; sleep 0.1; done; echo never asked; exit 1; }\n" +
            program);
    test::write_file(dir.path("start"), agent_start_command({{image}}));
    std::vector<std::string> argv = before;
    argv.insert(argv.end(), {"bash", dir.path("drive")});
    return test::run_program(argv, "",
                             {"PATH=" + dir.path("bin") + ":/usr/bin:/bin:/usr/sbin:/sbin", "DIR=" + dir.path(),
                              "SH=" + shell, "HOME=" + dir.path("home"), "TMPDIR=" + dir.path("tmp")});
  }
};

// Shells that a node's sh may be, as far as they are here.
std::vector<std::string> shells() {
  std::vector<std::string> found = {"sh"};
  for (const char* shell : {"/bin/dash", "/bin/bash", "/bin/busybox", "/bin/mksh", "/bin/ksh93"}) {
    if (test::file_exists(shell)) {
      found.push_back(std::string(shell) + (std::string(shell) == "/bin/busybox" ? " sh" : ""));
    }
  }
  return found;
}

Event feed(AgentGreeting& greeting, const std::string& text) {
  greeting.feed(as_bytes(text));
  return greeting.next();
}

TEST_CASE("an absent agent is asked for, kept in a private directory and started") {
  const Node node;
  const test::Ran first = node.start(node.image.bytes + "to the agent\n");
  CHECK(first.output == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\nto the agent\n");
  CHECK(test::list_dir(node.cache()) == std::vector<std::string>{"agent-" + node.image.sha256});
  struct stat info{};
  REQUIRE(::stat(node.cache().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  const test::Ran second = node.start("again\n");
  CHECK(second.output == "\nHVDRUN-AGENT\nagent here\nagain\n");
}

TEST_CASE("the agent, and so the ranks, get the login's umask; the agent's own folder is private under any") {
  Node node;
  test::write_file(node.dir.path("agent"), "#!/bin/sh\n[ \"$1\" = serve ] || exit 0\numask\n");
  node.image = load_agent_images(node.dir.path("agent")).value().all.front();
  for (const std::string& shell : shells()) {
    CAPTURE(shell);
    node.shell = shell;
    const test::Ran ran = node.drive("umask 002; push; umask 027; push; stat -c %a \"$HOME/.cache/hvdrun\"");
    const auto first = ran.output.find("002\n");
    REQUIRE(first != std::string::npos);
    CHECK(ran.output.find("027\n", first) != std::string::npos);
    CHECK(ran.output.ends_with("\n700\n"));
  }
}

TEST_CASE("bytes that do not have the right checksum are refused and leave nothing behind") {
  const Node node;
  std::string damaged = node.image.bytes;
  damaged[20] = '#';
  CHECK(node.start(damaged).output.find("HVDRUN-FAIL the agent arrived damaged in ") != std::string::npos);
  CHECK(test::list_dir(node.cache()).empty());
}

TEST_CASE("an agent that arrives in part is refused and leaves nothing behind") {
  const Node node;
  const test::Ran ran = node.start(node.image.bytes.substr(0, 10));
  CHECK(ran.output.find("HVDRUN-FAIL got 10 of ") != std::string::npos);
  CHECK(ran.status == 1);
  CHECK(test::list_dir(node.cache()).empty());
}

TEST_CASE("a cached agent of the wrong size is passed over, and not touched: another node may run it") {
  const Node node;
  REQUIRE(node.start(node.image.bytes).status == 0);
  for (const char* next : {".2", ".3"}) {
    test::write_file(node.cache() + "/" + node.name() + (std::string(next) == ".2" ? "" : ".2"), "half", 0700);
    CHECK(node.start(node.image.bytes).output == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n");
    CHECK(node.start("").output == "\nHVDRUN-AGENT\nagent here\n");
  }
  CHECK(test::list_dir(node.cache()) == std::vector<std::string>{node.name(), node.name() + ".2", node.name() + ".3"});
  CHECK(test::read_file(node.cache() + "/" + node.name()) == "half");
  // More than anybody will see; even so there is a way on.
  test::write_file(node.cache() + "/" + node.name() + ".3", "half", 0700);
  CHECK(node.start(node.image.bytes).output == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n");
  CHECK(node.start("").output == "\nHVDRUN-AGENT\nagent here\n");
}

TEST_CASE("a cached agent that is damaged is passed over, also where no sha256sum can tell") {
  const Node node;
  test::run_program({"mkdir", "-p", node.dir.path("bin")});
  for (const char* tool : {"sh", "cat", "chmod", "echo", "find", "head", "id", "ln", "mkdir", "mktemp", "mv", "rm",
                           "touch", "uname", "wc"}) {
    test::run_program({"sh", "-c", "ln -s $(command -v " + std::string(tool) + ") " + node.dir.path("bin")});
  }
  for (const std::string& path : {std::string("/usr/bin:/bin"), node.dir.path("bin")}) {
    test::run_program({"rm", "-rf", node.cache()});
    test::run_program({"mkdir", "-p", node.cache()});
    test::run_program({"chmod", "700", node.cache()});
    const std::string zeros(node.image.bytes.size(), '\0');  // what a power failure leaves of a file
    test::write_file(node.cache() + "/" + node.name(), zeros, 0700);
    const auto start = [&] {
      return test::run_program({"/bin/sh", "-c", agent_start_command({{node.image}})}, kAgentText,
                               {"PATH=" + path, "HOME=" + node.dir.path("home"), "TMPDIR=" + node.dir.path("tmp")});
    };
    CHECK(start().output == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n");
    CHECK(start().output.starts_with("\nHVDRUN-AGENT\nagent here\n"));  // the second name is whole
    CHECK(test::read_file(node.cache() + "/" + node.name()) == zeros);
    CHECK(test::read_file(node.cache() + "/" + node.name() + ".2") == kAgentText);
  }
}

TEST_CASE("of two pushers at once the first wins, and the second runs the first's file without replacing it") {
  const Node node;
  const test::Ran ran = node.drive(
      "slow; push >first; ls -i home/.cache/hvdrun/agent-* | grep -v tmp >before\n"
      "cat agent >&3; exec 3>&-; wait; ls -i home/.cache/hvdrun/agent-* >after\n"
      "cmp before after && cat first slow");
  const std::string once = "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n";
  CHECK(ran.output == once + once);
}

TEST_CASE("many pushers at once all start, and leave one file") {
  bool has_bad = false;
  for (const std::string& shell : shells()) {
    CAPTURE(shell);
    has_bad = !has_bad;
    CAPTURE(has_bad);
    Node node;
    node.shell = shell;
    const test::Ran ran = node.drive(std::string(has_bad ? "push >none; echo half >home/.cache/hvdrun/agent-*\n" : "") +
                                     "for i in {1..12}; do push >out.$i 2>&1 & done; wait; cat out.* | grep -c '^agent "
                                     "here$'; cat out.* | grep FAIL");
    CHECK(ran.output == "12\n");
    CHECK(test::list_dir(node.cache()).size() == (has_bad ? 2 : 1));
  }
}

TEST_CASE("a push that is killed leaves nothing that is taken for an agent, and nothing for longer than a day") {
  const Node node;
  const test::Ran ran = node.drive(
      "slow; head -c 30 agent >&3; kill -KILL %1; exec 3>&-; wait; ls home/.cache/hvdrun | grep -c tmp\n"
      "push; ls home/.cache/hvdrun | grep -c tmp\n"  // it may still be at work
      "touch -d '2 days ago' home/.cache/hvdrun/*.tmp.*; push\n"
      "rm home/.cache/hvdrun/agent-*[0-9a-f]; push >again; ls home/.cache/hvdrun | grep -c tmp");
  CHECK(ran.output == "1\n\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n1\n\nHVDRUN-AGENT\nagent here\n" +
                          std::string(kAgentText) + "0\n");
}

TEST_CASE("a push that is told to end removes its file") {
  const Node node;
  for (const char* signal : {"TERM", "HUP", "INT"}) {
    CAPTURE(signal);
    CHECK(node.drive("slow; ls home/.cache/hvdrun | grep -c tmp; kill -" + std::string(signal) + " %1; wait").output ==
          "1\n");
    CHECK(test::list_dir(node.cache()).empty());
  }
}

TEST_CASE("where the file system has no links, the file is renamed") {
  const Node node;
  ::mkdir(node.dir.path("bin").c_str(), 0700);
  test::write_file(node.dir.path("bin/ln"), "#!/bin/sh\nexit 1\n", 0700);
  CHECK(node.drive("push; push").output ==
        "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n\nHVDRUN-AGENT\nagent here\n" + std::string(kAgentText));
  CHECK(test::list_dir(node.cache()) == std::vector<std::string>{node.name()});
}

TEST_CASE("without a usable home the agent goes to a private directory in TMPDIR") {
  const Node node;
  test::write_file(node.dir.path("home"), "a file, so no directory can be made in it");
  ::mkdir(node.dir.path("tmp").c_str(), 0700);
  CHECK(node.start(node.image.bytes).output.find("HVDRUN-AGENT\n") != std::string::npos);
  const std::vector<std::string> made = test::list_dir(node.dir.path("tmp"));
  REQUIRE(made.size() == 1);
  CHECK(made[0].starts_with("hvdrun-"));
}

// The commands that make the cache's file system one that cannot serve, and may not be allowed here.
constexpr const char* kNoExec = "mount -t tmpfs -o noexec none home/.cache";
constexpr const char* kFull = "mount -t tmpfs -o size=16k none home/.cache";
constexpr const char* kNoFiles =
    "mount -t tmpfs -o nr_inodes=3 none home/.cache && mkdir -m 700 home/.cache/hvdrun && "
    "touch home/.cache/file";
constexpr const char* kNoDirectories = "mount -t tmpfs -o nr_inodes=1 none home/.cache";

// Runs the program where these mounts are its own; nothing, counted as skipped, where that is not allowed.
std::optional<std::string> drive_mounted(const Node& node, const std::string& mount, const std::string& program) {
  if (test::run_program({"unshare", "-m", "mount", "-t", "tmpfs", "none", node.dir.path()}).status != 0) {
    MESSAGE("SKIPPED no mounts of our own here");
    return std::nullopt;
  }
  return node.drive("mkdir -p home/.cache tmp && " + mount + " || echo cannot mount\n" + program, {"unshare", "-m"})
      .output;
}

// A node with an agent of 100 kB.
struct BigNode : Node {
  BigNode() {
    test::write_file(dir.path("agent"), "#!/bin/sh\n[ \"$1\" = serve ] || exit 0\necho agent here\nexit\n" +
                                            std::string(100'000, '#') + "\n");
    image = load_agent_images(dir.path("agent")).value().all.front();
  }
};

TEST_CASE("a cache without room, or whose programs may not run, is left for TMPDIR, with one push") {
  for (const std::string& shell : shells()) {
    for (const char* mount : {kNoExec, kFull, kNoFiles, kNoDirectories}) {
      CAPTURE(shell);
      CAPTURE(mount);
      BigNode node;
      node.shell = shell;
      const auto said = drive_mounted(node, mount, "push; push; find home -name '*tmp*'; ls tmp/hvdrun-*");
      if (!said) {
        return;
      }
      CHECK(*said == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n\nHVDRUN-AGENT\nagent here\n" + node.name() + "\n");
    }
  }
}

TEST_CASE("an agent that was cached before the cache was full is used") {
  const BigNode node;
  const auto said = drive_mounted(node, "mount -t tmpfs -o size=600k none home/.cache",
                                  "push; head -c 600000 /dev/zero >home/.cache/more; push; ls tmp");
  CHECK(said.value_or("\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n\nHVDRUN-AGENT\nagent here\n") ==
        "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n\nHVDRUN-AGENT\nagent here\n");
}

TEST_CASE("where no place can hold the agent or run it, each is named with its reason") {
  const BigNode node;
  const auto said = drive_mounted(node, std::string(kFull) + " && mount -t tmpfs -o noexec none tmp",
                                  "push; find home tmp -name '*tmp.*'");
  if (said) {
    const std::string tmp = node.dir.path("tmp/hvdrun-" + std::to_string(::getuid()));
    CHECK(*said == "\nHVDRUN-FAIL no place to put the agent: " + node.cache() + " has no room for " +
                       std::to_string(node.image.bytes.size()) + " bytes; " + tmp +
                       " lets no program run (mounted noexec?); set XDG_CACHE_HOME on the node to a directory that can "
                       "hold it\n");
  }
}

TEST_CASE("a disk that fills while the agent is pushed is told, and the part of it removed") {
  const BigNode node;
  const auto said =
      drive_mounted(node, "mount -t tmpfs -o size=600k none home/.cache",
                    "slow; truncate -s 0 home/.cache/hvdrun/*; head -c 600000 /dev/zero >home/.cache/more\n"
                    "cat agent >&3; exec 3>&-; wait; cat slow; ls home/.cache/hvdrun");
  if (said) {
    CHECK(said->starts_with("\nHVDRUN-NEED\n"));
    CHECK(said->find("\nHVDRUN-FAIL cannot write to " + node.cache() + "; is the disk full?\n") != std::string::npos);
    CHECK(said->ends_with("full?\n"));
  }
}

TEST_CASE("under a setgid directory the agent's own is private and no more setgid") {
  for (const bool is_there : {false, true}) {
    CAPTURE(is_there);
    const Node node;
    ::mkdir(node.dir.path("home").c_str(), 0700);
    ::mkdir(node.dir.path("home/.cache").c_str(), 0700);
    REQUIRE(::chmod(node.dir.path("home/.cache").c_str(), 02755) == 0);
    if (is_there) {  // as an earlier push left it
      REQUIRE(::mkdir(node.cache().c_str(), 0700) == 0);
      REQUIRE(::chmod(node.cache().c_str(), 02700) == 0);
    }
    CHECK(node.start(node.image.bytes).output == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n");
    CHECK(test::list_dir(node.cache()) == std::vector<std::string>{node.name()});
    struct stat info{};
    REQUIRE(::stat(node.cache().c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0700);
  }
}

// Images of Red Hat, Fedora and Amazon have none.
TEST_CASE("a node without find gets an agent, and a directory of others stays none of ours") {
  const Node node;
  ::mkdir(node.dir.path("bin").c_str(), 0700);
  for (const char* tool : {"sh", "cat", "chmod", "echo", "head", "id", "ln", "mkdir", "mktemp", "mv", "rm", "sha256sum",
                           "stat", "touch", "uname", "wc"}) {
    test::run_program({"sh", "-c", "ln -s $(command -v " + std::string(tool) + ") " + node.dir.path("bin")});
  }
  const auto start = [&] {
    return test::run_program(
        {"/bin/sh", "-c", agent_start_command({{node.image}})}, node.image.bytes,
        {"PATH=" + node.dir.path("bin"), "HOME=" + node.dir.path("home"), "TMPDIR=" + node.dir.path("tmp")});
  };
  CHECK(start().output == "\nHVDRUN-NEED\n\nHVDRUN-AGENT\nagent here\n");
  CHECK(start().output.starts_with("\nHVDRUN-AGENT\nagent here\n"));
  test::run_program({"rm", "-rf", node.dir.path("home")});
  test::write_file(node.dir.path("home"), "");
  ::mkdir(node.dir.path("tmp").c_str(), 0700);
  ::mkdir(node.dir.path("theirs").c_str(), 0700);
  const std::string link = node.dir.path("tmp/hvdrun-") + std::to_string(::getuid());
  REQUIRE(::symlink(node.dir.path("theirs").c_str(), link.c_str()) == 0);
  CHECK(start().output.find("is not a private directory") != std::string::npos);
}

TEST_CASE("a link in the place of the private directory is not followed") {
  const Node node;
  test::write_file(node.dir.path("home"), "");
  ::mkdir(node.dir.path("tmp").c_str(), 0700);
  ::mkdir(node.dir.path("theirs").c_str(), 0700);
  REQUIRE(::chmod(node.dir.path("theirs").c_str(), 0750) == 0);
  const std::string link = node.dir.path("tmp/hvdrun-") + std::to_string(::getuid());
  REQUIRE(::symlink(node.dir.path("theirs").c_str(), link.c_str()) == 0);
  CHECK(node.start(node.image.bytes).output.find("is not a private directory") != std::string::npos);
  CHECK(test::list_dir(node.dir.path("theirs")).empty());
  struct stat info{};
  REQUIRE(::stat(node.dir.path("theirs").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0750);  // and its rights are not ours to change
}

TEST_CASE("an agent for another processor is refused by name") {
  Node node;
  node.image.machine = "pdp11";
  CHECK(node.start("").output.find("but this agent is for pdp11") != std::string::npos);
}

TEST_CASE("a node with another processor asks for its own agent by name") {
  Node node;
  AgentImages images{{node.image, node.image}};
  images.all.front().machine = "pdp11";
  images.all.front().sha256.assign(64, '0');
  const test::Ran ran = test::run_program({"/bin/sh", "-c", agent_start_command(images)}, node.image.bytes,
                                          {"PATH=/usr/bin:/bin", "HOME=" + node.dir.path("home")});
  CHECK(ran.output == "\nHVDRUN-NEED " + node.image.machine + "\n\nHVDRUN-AGENT\nagent here\n");
  images.all.back().machine = "vax";
  const test::Ran refused = test::run_program({"/bin/sh", "-c", agent_start_command(images)}, "",
                                              {"PATH=/usr/bin:/bin", "HOME=" + node.dir.path("home")});
  CHECK(refused.output == "\nHVDRUN-FAIL the node is " + node.image.machine + ", but this agent is for pdp11 or vax\n");
}

TEST_CASE("a request for an agent names its processor") {
  AgentGreeting own;
  CHECK(feed(own, "HVDRUN-NEED\n") == Event::kNeed);
  CHECK(own.wanted().empty());
  AgentGreeting other;
  CHECK(feed(other, "HVDRUN-NEED aarch64\n") == Event::kNeed);
  CHECK(other.wanted() == "aarch64");
  AgentGreeting endless;
  CHECK(feed(endless, "HVDRUN-NEED " + std::string(10'000, 'x') + "\n") == Event::kNeed);
  CHECK(endless.wanted().size() == 64);
  AgentGreeting terminal;
  CHECK(feed(terminal, "HVDRUN-NEED aarch64\r\n") == Event::kFailed);
  AgentGreeting noise;
  CHECK(feed(noise, "HVDRUN-NEEDLE aarch64\n") == Event::kNone);
}

TEST_CASE("agents for other processors lie beside this machine's own") {
  const TempDir dir;
  test::write_file(dir.path("agent"), "own");
  const std::string own = own_processor();
  const std::string other = own == "aarch64" ? "x86_64" : "aarch64";
  test::write_file(dir.path("agent-" + own), "not asked for");
  test::write_file(dir.path("agent-" + other), "other");
  const AgentImages images = load_agent_images(dir.path("agent")).value();
  REQUIRE(images.all.size() == 2);
  CHECK(images.find("") == &images.all.front());
  CHECK(images.find(own)->bytes == "own");
  CHECK(images.find(other)->bytes == "other");
  CHECK(images.find(other)->sha256 != images.find(own)->sha256);
  CHECK(images.find("pdp11") == nullptr);
}

TEST_CASE("a file that cannot be executed is refused before the agent is announced") {
  Node node;
  test::write_file(node.dir.path("agent"), "#!/no/such/interpreter\n");
  node.image = load_agent_images(node.dir.path("agent")).value().all.front();
  const test::Ran ran = node.start(node.image.bytes);
  CHECK(ran.output.find("HVDRUN-FAIL cannot execute programs in ") != std::string::npos);
  CHECK(ran.output.find("HVDRUN-AGENT") == std::string::npos);
}

TEST_CASE("agents that were not used for 30 days are removed, younger ones stay") {
  const Node node;
  ::mkdir(node.dir.path("home").c_str(), 0700);
  ::mkdir(node.dir.path("home/.cache").c_str(), 0700);
  ::mkdir(node.cache().c_str(), 0700);
  test::write_file(node.cache() + "/agent-old", "", 0700);
  test::write_file(node.cache() + "/agent-young", "", 0700);
  test::run_program({"touch", "-d", "40 days ago", node.cache() + "/agent-old"});
  REQUIRE(node.start(node.image.bytes).status == 0);
  CHECK(test::list_dir(node.cache()) == std::vector<std::string>{"agent-" + node.image.sha256, "agent-young"});
}

TEST_CASE("the command is one line that csh and fish read like sh") {
  const std::string command = agent_start_command({{Node().image}});
  const std::string inside = command.substr(12, command.size() - 13);
  CHECK(command.starts_with("exec sh -c '"));
  CHECK(command.ends_with("'"));
  CHECK(inside.find_first_of("'!\\\n") == std::string::npos);
  for (const char* shell : {"/bin/bash", "/bin/dash", "/usr/bin/fish", "/bin/csh", "/bin/zsh"}) {
    if (test::file_exists(shell)) {
      const Node node;
      CHECK_MESSAGE(node.start(node.image.bytes, shell).output.find("HVDRUN-AGENT\nagent here") != std::string::npos,
                    shell);
    }
  }
}

TEST_CASE("what a login shell prints before the agent is skipped, in any chunking") {
  const std::string said = "Welcome to node1\nno newline at the end\nHVDRUN-NEED\n\nHVDRUN-AGENT\nrest";
  AgentGreeting whole;
  CHECK(feed(whole, said) == Event::kNeed);
  CHECK(whole.next() == Event::kAgent);
  CHECK(whole.rest() == "rest");
  AgentGreeting bytewise;
  int needs = 0;
  int agents = 0;
  for (const char c : said.substr(0, said.size() - 4)) {
    const Event event = feed(bytewise, std::string(1, c));
    needs += event == Event::kNeed ? 1 : 0;
    agents += event == Event::kAgent ? 1 : 0;
  }
  CHECK(needs == 1);
  CHECK(agents == 1);
}

TEST_CASE("a login shell that prints empty lines alone is given up at 64 KiB, however much has come") {
  AgentGreeting greeting;
  const std::string lines(16U << 20U, '\n');  // line by line this would be moved 16 million times
  greeting.feed(as_bytes(lines));
  CHECK(greeting.next() == Event::kFailed);
  CHECK(greeting.failure().find("more than 64 KiB") != std::string::npos);
}

TEST_CASE("a failure of the script is read, and noise without end is given up") {
  AgentGreeting failed;
  CHECK(feed(failed, "motd\nHVDRUN-FAIL no space\n") == Event::kFailed);
  CHECK(failed.failure() == "no space");
  CHECK(failed.last_noise() == "motd");
  AgentGreeting endless;
  CHECK(feed(endless, std::string(70'000, 'x')) == Event::kFailed);
  CHECK(endless.failure().find("64 KiB") != std::string::npos);
}

TEST_CASE("an agent executable that is not there is an error that names it") {
  const auto image = load_agent_images("/no/such/agent");
  REQUIRE(!image.ok());
  CHECK(image.error().message().find("/no/such/agent") != std::string::npos);
}

}  // namespace

}  // namespace hvd::launch::agent_push_test
