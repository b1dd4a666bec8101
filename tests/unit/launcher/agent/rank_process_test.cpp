// launcher/agent/rank_process: the output of a rank that has ended.
#include "launcher/agent/rank_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/jumping_clock.h"

namespace hvd::launch::rank_process_test {
namespace {

using namespace std::chrono_literals;

// A script around a program: the signal ends the script, and the program goes on. It prints its number first.
struct Wrapped {
  explicit Wrapped(const std::string& program) {
    RankProcess::Sink sink;
    sink.allowance = [] { return std::size_t{4096}; };
    sink.on_output = [this](int, StreamId, std::string_view bytes) { output += bytes; };
    sink.on_output_end = [](int, StreamId) {};
    SpawnOptions options;
    options.argv = {"sh", "-c", program + " & wait; echo never"};
    options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    rank = RankProcess::start(*loop, 0, std::move(options), std::move(sink)).value();
  }
  // Other cases reap all children of this process, so none of these is left to them.
  ~Wrapped() {
    ::kill(-rank->pid(), SIGKILL);
    while (::waitpid(-rank->pid(), nullptr, 0) > 0) {
    }
  }
  Wrapped(const Wrapped&) = delete;
  Wrapped& operator=(const Wrapped&) = delete;

  void turn() { REQUIRE(loop->turn(hvd::Deadline::after(20ms)).ok()); }
  // Returns the number of the program, which is ready for the signal.
  pid_t begun() {
    while (output.find('\n') == std::string::npos) {
      turn();
    }
    return std::atoi(output.c_str());
  }
  void reap() {
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(rank->pid()), &ended, WEXITED | WNOWAIT) == 0);
    int status = 0;
    REQUIRE(::waitpid(rank->pid(), &status, 0) == rank->pid());
    rank->mark_exited(ExitStatus::from_wait(status));
  }

  hvd::test::JumpingClock clock;
  const std::unique_ptr<hvd::EventLoop> loop = hvd::EventLoop::create(clock).value();
  std::string output;
  std::unique_ptr<RankProcess> rank;
};

// It prints its number, and its last words when SIGUSR1 allows that.
constexpr const char* kSaves =
    "sh -c 'trap : TERM INT; trap \"echo saved; exit 0\" USR1; echo $$; while :; do sleep 0.05; done'";

}  // namespace

TEST_CASE("what a rank has left that was told to end may write to its pipes until the grace is over") {
  Wrapped script(kSaves);
  const pid_t program = script.begun();
  CHECK_FALSE(script.rank->was_told());
  script.rank->stop(SIGTERM, 60s);
  script.reap();
  CHECK(script.rank->was_told());
  CHECK(script.rank->has_told(program));
  script.clock.jumped += 50s;
  script.turn();
  CHECK_FALSE(script.rank->is_finished());
  SUBCASE("it ends by itself") {
    ::kill(program, SIGUSR1);
    while (!script.rank->is_finished()) {
      script.turn();
    }
    CHECK(script.output.ends_with("saved\n"));
  }
  SUBCASE("SIGKILL leaves it no more time than after any end") {
    script.rank->stop(SIGKILL, 0s);
    script.clock.jumped += 3s;
    script.turn();
    CHECK(script.rank->is_finished());
  }
  SUBCASE("so does the news that nothing is left") {
    script.rank->end_drain();
    script.clock.jumped += 3s;
    script.turn();
    CHECK(script.rank->is_finished());
  }
}

TEST_CASE("what a rank has left that ended by itself gets no grace") {
  Wrapped script(kSaves);
  const pid_t program = script.begun();
  ::kill(script.rank->pid(), SIGTERM);
  script.reap();
  script.rank->stop(SIGTERM, 60s);
  CHECK_FALSE(script.rank->was_told());
  CHECK_FALSE(script.rank->has_told(program));
  CHECK(script.rank->grace_ends() < script.loop->now());
  script.clock.jumped += 3s;
  script.turn();
  CHECK(script.rank->is_finished());
}

TEST_CASE("what has left a rank's group, or ignores its signal, was not told to end with it") {
  Wrapped script(kSaves);
  script.begun();
  script.rank->stop(SIGTERM, 60s);
  CHECK_FALSE(script.rank->has_told(::getpid()));
  Wrapped other("sh -c 'trap \"\" INT; echo $$; while :; do sleep 0.05; done'");
  const pid_t deaf = other.begun();
  other.rank->stop(SIGINT, 60s);
  CHECK_FALSE(other.rank->has_told(deaf));
}

TEST_CASE("all that a rank has written is read when it has ended, also from a pipe that it has enlarged") {
  constexpr std::size_t kWritten = 1U << 20U;
  hvd::test::JumpingClock clock;
  const auto loop = hvd::EventLoop::create(clock).value();
  std::size_t allowance = 0;
  std::size_t read = 0;
  bool is_over = false;
  RankProcess::Sink sink;
  sink.allowance = [&allowance] { return allowance; };
  sink.on_output = [&read](int, StreamId, std::string_view bytes) { read += bytes.size(); };
  sink.on_output_end = [&is_over](int, StreamId stream) { is_over = is_over || stream == StreamId::kStdout; };
  SpawnOptions options;
  // A process that it leaves behind holds the pipe open. 1031: F_SETPIPE_SZ.
  options.argv = {"python3", "-S", "-c",
                  "import fcntl, os, subprocess\nfcntl.fcntl(1, 1031, 1 << 20)\n"
                  "subprocess.Popen(['sleep', '1000'], stderr=subprocess.DEVNULL)\nos.write(1, b'x' * (1 << 20))"};
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  const auto rank = RankProcess::start(*loop, 0, std::move(options), std::move(sink)).value();
  const pid_t group = rank->pid();
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(group), &ended, WEXITED | WNOWAIT) == 0);
  REQUIRE(loop->turn(hvd::Deadline::after(hvd::Duration::zero())).ok());  // it finds that nothing is allowed
  int status = 0;
  REQUIRE(::waitpid(group, &status, 0) == group);
  REQUIRE(ExitStatus::from_wait(status).is_success());
  rank->mark_exited(ExitStatus::from_wait(status));
  CHECK(read == 0);
  allowance = 2 * kWritten;
  clock.jumped += 10s;  // whoever holds the pipe is not waited for any longer
  rank->resume();
  while (!is_over) {
    REQUIRE(loop->turn(hvd::Deadline::after(std::chrono::minutes(5))).ok());
  }
  ::kill(-group, SIGKILL);
  CHECK(read == kWritten);
}

}  // namespace hvd::launch::rank_process_test
