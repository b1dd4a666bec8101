// launcher/process/child: what is read of a process, when its end is told, and how it is ended.
#include "launcher/process/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include <doctest/doctest.h>

#include "launcher/process/other_process.h"
#include "tests/support/jumping_clock.h"

namespace hvd::launch::child_test {
namespace {

// Generous: these tests also run on machines that are busy with something else.
constexpr Duration kPatience = std::chrono::seconds(300);

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// An owner of one process, and what it was told of.
struct Owner {
  Owner() { ::signal(SIGPIPE, SIG_IGN); }

  Result<void> start(std::vector<std::string> argv) {
    SpawnOptions program;
    program.argv = std::move(argv);
    program.environment = {"PATH=/usr/bin:/bin"};
    return start(std::move(program));
  }
  Result<void> start(SpawnOptions program) {
    Child::Handlers handlers;
    handlers.allowance = [this] { return allowance; };
    handlers.on_output = [this](Child::Stream stream, std::string_view text) {
      CHECK(!is_over);
      allowance -= text.size();
      (stream == Child::Stream::kOutput ? output : errors) += text;
      if (when_output) {
        when_output();
      }
    };
    handlers.on_output_end = [this](Child::Stream) { ++ends; };
    handlers.on_over = [this](const std::optional<ExitStatus>& ended, const std::string& words) {
      CHECK(!is_over);
      is_over = true;
      status = ended;
      how = words;
    };
    HVD_TRY_ASSIGN(child, Child::start(*loop, std::move(program), options, std::move(handlers)));
    return {};
  }
  void grant(std::size_t bytes) {
    allowance += bytes;
    child->resume();
  }
  template <typename Condition>
  void until(const Condition& is_done) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!is_done()) {
      REQUIRE(!deadline.has_passed());
      REQUIRE(loop->turn(Deadline(deadline.at() + clock.jumped)).ok());
    }
  }
  void until_over() {
    until([this] { return is_over; });
  }
  void turn() const { REQUIRE(loop->turn(Deadline::after(Duration::zero())).ok()); }

  hvd::test::JumpingClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  Child::Options options;
  std::size_t allowance = 1U << 30U;
  std::function<void()> when_output;
  std::string output;
  std::string errors;
  int ends = 0;
  bool is_over = false;
  std::optional<ExitStatus> status;
  std::string how;
  std::unique_ptr<Child> child;
};

bool is_gone(pid_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

// Waits until the process can be reaped.
void await_end(pid_t pid) {
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) == 0);
}

}  // namespace

TEST_CASE("a child takes its input, and its end is told after all that it has written") {
  Owner owner;
  owner.options.has_input = true;
  const std::size_t before = open_descriptors();
  REQUIRE(owner.start({"sh", "-c", "cat; echo so >&2; exit 7"}).ok());
  const std::string pushed(300'000, 'y');
  owner.child->write("x");
  owner.child->push(pushed);
  owner.child->write("z");
  owner.child->close_input();
  owner.until_over();
  CHECK(owner.output == "x" + pushed + "z");
  CHECK(owner.errors == "so\n");
  CHECK(owner.ends == 2);
  CHECK(owner.status->shell_code() == 7);
  CHECK(owner.how == "exited with code 7");
  CHECK(is_gone(owner.child->pid()));   // it is reaped
  CHECK(open_descriptors() == before);  // though its owner keeps it
}

TEST_CASE("what stands in the pipes of a child that has ended is read first, however much it is") {
  Owner owner;
  SpawnOptions program;
  program.argv = {"python3", "-S", "-c",
                  "import fcntl, os\nfcntl.fcntl(1, 1031, 1 << 20)\nos.write(1, b'x' * (1 << 20))"};  // F_SETPIPE_SZ
  program.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  REQUIRE(owner.start(std::move(program)).ok());
  await_end(owner.child->pid());
  owner.until_over();
  CHECK(owner.output.size() == 1U << 20U);
  CHECK(owner.status->is_success());
}

TEST_CASE("a grandchild that holds the pipe is waited for only so long, and ended with its group") {
  Owner owner;
  REQUIRE(owner.start({"sh", "-c", "sleep 1000 & echo $!"}).ok());
  owner.until([&] { return owner.child->has_exited(); });
  CHECK(owner.output.ends_with("\n"));
  CHECK(!owner.is_over);
  owner.clock.jumped += std::chrono::seconds(10);
  owner.until_over();
  CHECK(owner.status->is_success());
  CHECK(owner.ends == 2);
  if (const auto grandchild = open_process(static_cast<pid_t>(std::stol(owner.output))); grandchild.ok()) {
    pollfd ended{grandchild.value().get(), POLLIN, 0};  // whoever is its parent now reaps it
    CHECK(::poll(&ended, 1, Deadline::after(kPatience).poll_ms()) == 1);
  }
}

TEST_CASE("a child that has exited leaves nothing, also where its output was still awaited") {
  Owner owner;
  REQUIRE(owner.start({"sh", "-c", "sleep 1000 & echo $!"}).ok());
  owner.until([&] { return owner.child->has_exited(); });
  const pid_t pid = owner.child->pid();
  SUBCASE("when it is destroyed") {
    owner.child.reset();
  }
  SUBCASE("when it is told to end") {
    owner.child->end(std::chrono::seconds(1));
  }
  CHECK(::waitpid(pid, nullptr, WNOHANG) == -1);  // it was reaped
  if (const auto grandchild = open_process(static_cast<pid_t>(std::stol(owner.output))); grandchild.ok()) {
    pollfd ended{grandchild.value().get(), POLLIN, 0};
    CHECK(::poll(&ended, 1, Deadline::after(kPatience).poll_ms()) == 1);
  }
}

TEST_CASE("a child is read as far as its reader allows, and nothing is dropped for want of it") {
  Owner owner;
  owner.allowance = 1000;
  REQUIRE(owner.start({"sh", "-c", "head -c 50000 /dev/zero; echo end >&2"}).ok());
  await_end(owner.child->pid());
  owner.until([&] { return owner.child->has_exited(); });
  CHECK(owner.output.size() + owner.errors.size() == 1000);
  for (int drain = 0; drain < 3; ++drain) {
    owner.clock.jumped += std::chrono::seconds(10);
    owner.turn();
  }
  CHECK(!owner.is_over);
  CHECK(owner.output.size() + owner.errors.size() == 1000);
  owner.grant(100'000);
  owner.until_over();
  CHECK(owner.output.size() == 50'000);
  CHECK(owner.errors == "end\n");
}

TEST_CASE("a paused child costs no wake-up, though its pipes are at their end") {
  Owner owner;
  owner.allowance = 0;
  REQUIRE(owner.start({"sh", "-c", "echo one; echo two >&2"}).ok());
  await_end(owner.child->pid());
  owner.until([&] { return owner.child->has_exited(); });
  owner.turn();
  const auto before = owner.loop->wakeups();
  REQUIRE(owner.loop->turn(Deadline::after(std::chrono::milliseconds(50))).ok());
  CHECK(owner.loop->wakeups() == before + 1);  // the deadline's
  owner.grant(100);
  owner.until_over();
}

TEST_CASE("a child that lives on without its output is over after a while, if its owner says so") {
  Owner owner;
  owner.options.end_time = std::chrono::seconds(2);
  REQUIRE(owner.start({"sh", "-c", "exec >&- 2>&-; exec sleep 1000"}).ok());
  owner.until([&] { return owner.ends == 2; });
  CHECK(!owner.is_over);
  owner.clock.jumped += std::chrono::seconds(10);
  owner.until_over();
  CHECK(!owner.status);
  CHECK(owner.how == "closed its output");
  const pid_t pid = owner.child->pid();
  owner.child.reset();
  CHECK(is_gone(pid));
}

TEST_CASE("an end is SIGTERM, and SIGKILL for a child that does not want to; its owner hears nothing of it") {
  for (const std::string trap : {"", "trap '' TERM; "}) {
    CAPTURE(trap);
    Owner owner;
    REQUIRE(owner.start({"sh", "-c", trap + "echo up; while :; do sleep 1000; done"}).ok());
    owner.until([&] { return owner.output == "up\n"; });
    owner.child->end(std::chrono::seconds(1));
    if (!trap.empty()) {
      owner.turn();
      CHECK(!owner.child->has_exited());
      owner.clock.jumped += std::chrono::seconds(2);
    }
    owner.until([&] { return owner.child->has_exited(); });
    CHECK(owner.child->status()->value == (trap.empty() ? SIGTERM : SIGKILL));
    CHECK(!owner.is_over);
    CHECK(owner.ends == 0);
  }
}

TEST_CASE("a ladder ends what a child leaves to it") {
  Owner owner;
  pid_t pid = 0;
  {
    StopLadder ladder(*owner.loop);
    REQUIRE(owner.start({"sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000; done"}).ok());
    owner.until([&] { return owner.output == "up\n"; });
    pid = owner.child->pid();
    owner.child->leave_to(ladder, std::chrono::milliseconds(1));
    owner.child.reset();
    CHECK(!is_gone(pid));
  }
  CHECK(is_gone(pid));
}

TEST_CASE("a child that is reaped elsewhere is ended by its owner's word") {
  Owner owner;
  owner.options.is_reaped_elsewhere = true;
  REQUIRE(owner.start({"sh", "-c", "echo one; exit 3"}).ok());
  const pid_t pid = owner.child->pid();
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(!owner.child->has_exited());
  owner.child->signal(SIGKILL);  // goes to nobody
  owner.child->mark_exited(ExitStatus::from_wait(status));
  CHECK(owner.output == "one\n");  // before its end is known to anybody else
  owner.until_over();
  CHECK(owner.status->shell_code() == 3);
}

TEST_CASE("any word of a child may destroy it, and then it leaves no process and no descriptor") {
  Owner owner;
  const std::size_t before = open_descriptors();
  owner.options.has_input = true;
  pid_t pid = 0;
  owner.when_output = [&] {
    pid = owner.child->pid();
    owner.child.reset();
  };
  REQUIRE(owner.start({"sh", "-c", "echo one; while :; do sleep 1000; done"}).ok());
  owner.until([&] { return owner.child == nullptr; });
  CHECK(owner.output == "one\n");
  CHECK(!owner.is_over);
  CHECK(is_gone(pid));
  CHECK(open_descriptors() == before);
}

TEST_CASE("a child that cannot be started is told by name, and costs nothing") {
  Owner owner;
  const std::size_t before = open_descriptors();
  owner.options.has_input = true;
  const auto missing = owner.start({"no-such-program"});
  REQUIRE(!missing.ok());
  CHECK(missing.error().code() == Code::kNotFound);
  CHECK(missing.error().message().find("no such program: 'no-such-program' in PATH") == 0);
  CHECK(missing.error().message().find("quotes") == std::string::npos);
  CHECK(owner.start({"echo hello"}).error().message().find("quotes make it one word") != std::string::npos);
  CHECK(owner.start({"/etc/passwd"}).error().message().find("'/etc/passwd' is not an executable file") == 0);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a wait for a child has a limit, and reads what it has written") {
  Owner owner;
  REQUIRE(owner.start({"sh", "-c", "echo up; while :; do sleep 1000; done"}).ok());
  owner.until([&] { return owner.output == "up\n"; });
  CHECK(!owner.child->await_exit(Deadline::after(std::chrono::milliseconds(10))));
  owner.child->signal(SIGKILL);
  CHECK(owner.child->await_exit(Deadline::after(kPatience)));
  owner.until_over();
  CHECK(owner.status->value == SIGKILL);
}

}  // namespace hvd::launch::child_test
