#include "launcher/sampling/process_usage.h"

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/base/fd.h"

namespace hvd::launch {

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

}  // namespace hvd::launch
