#include "launcher/sampling/process_usage.h"

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <time.h>

#include "runtime/base/fd.h"

namespace hvd::launch::process_usage_test {
namespace {

// Uses so much of a processor, however long that takes.
void use_processor(int ms) {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  const auto begin = used.tv_sec * 1000 + used.tv_nsec / 1'000'000;
  while (used.tv_sec * 1000 + used.tv_nsec / 1'000'000 < begin + ms) {
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  }
}

// Returns a child that uses so much of a processor, says that by a byte, and ends once `hold` is closed.
pid_t start_child(int ms, Pipe& hold, Pipe& told) {
  const pid_t child = ::fork();
  if (child == 0) {
    hold.write_end.reset();
    use_processor(ms);
    char byte = 0;
    const bool is_told = ::write(told.write_end.get(), &byte, 1) == 1;
    ::_exit(is_told && ::read(hold.read_end.get(), &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  CHECK(::read(told.read_end.get(), &byte, 1) == 1);
  return child;
}

}  // namespace

TEST_CASE("what a process has started counts for it, and a process that has ended has nothing") {
  const pid_t self = ::getpid();
  Pipe hold = make_pipe().value();
  const pid_t child = ::fork();
  if (child == 0) {
    hold.write_end.reset();
    char byte = 0;
    ::_exit(::read(hold.read_end.get(), &byte, 1) == 0 ? 0 : 1);
  }
  ProcessUsage usage;
  auto measured = usage.measure({self});
  CHECK(measured.at(self).processes >= 2);
  CHECK(measured.at(self).memory_bytes > 0);
  const std::uint64_t before = measured.at(self).cpu_ms;
  hold.write_end.reset();
  ::waitpid(child, nullptr, 0);
  CHECK(usage.measure({self}).at(self).cpu_ms >= before);
  CHECK(usage.measure({child}).at(child).processes == 0);
  CHECK(node_memory().total > node_memory().free);
  CHECK(node_cpu_ms() > 0);
}

TEST_CASE("a process that is started between two looks counts at once, and its time also while nobody waits for it") {
  const pid_t self = ::getpid();
  ProcessUsage usage;
  const Usage before = usage.measure({self}).at(self);
  Pipe hold = make_pipe().value();
  Pipe told = make_pipe().value();
  const pid_t child = start_child(200, hold, told);
  const Usage with_child = usage.measure({self}).at(self);
  CHECK(with_child.processes == before.processes + 1);
  CHECK(with_child.cpu_ms >= before.cpu_ms + 150);
  hold.write_end.reset();
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  use_processor(100);
  const Usage after = usage.measure({self}).at(self);
  CHECK(after.processes == before.processes);
  CHECK(after.cpu_ms >= with_child.cpu_ms + 50);
  ::waitpid(child, nullptr, 0);
}

}  // namespace hvd::launch::process_usage_test
