#include "launcher/process/exit_status.h"

#include <signal.h>

#include <doctest/doctest.h>

namespace hvd::launch::exit_status_test {
namespace {

TEST_CASE("every standard signal has its name, and the others a number") {
  for (int signo = 1; signo < SIGSYS; ++signo) {
    CHECK_MESSAGE(signal_name(signo).starts_with("SIG"), signo);
  }
  CHECK(signal_name(SIGKILL) == "SIGKILL");
  CHECK(signal_name(SIGSTKFLT) == "SIGSTKFLT");
  CHECK(signal_name(SIGSYS) == "SIGSYS");
  CHECK(signal_name(0) == "signal 0");
  CHECK(signal_name(64) == "signal 64");
}

}  // namespace

}  // namespace hvd::launch::exit_status_test
