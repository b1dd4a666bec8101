// launcher/agent/rank_process: the output of a rank that has ended.
#include "launcher/agent/rank_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <doctest/doctest.h>

#include "tests/support/jumping_clock.h"

namespace hvd::launch::rank_process_test {

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
  clock.jumped += std::chrono::seconds(10);  // whoever holds the pipe is not waited for any longer
  rank->resume();
  while (!is_over) {
    REQUIRE(loop->turn(hvd::Deadline::after(std::chrono::minutes(5))).ok());
  }
  ::kill(-group, SIGKILL);
  CHECK(read == kWritten);
}

}  // namespace hvd::launch::rank_process_test
