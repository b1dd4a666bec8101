#include "launcher/process/exit_status.h"

#include <signal.h>
#include <sys/wait.h>

#include <string.h>

namespace hvd::launch {

ExitStatus ExitStatus::from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return {Kind::kSignalled, WTERMSIG(wait_status), WCOREDUMP(wait_status) != 0, false};
  }
  return {Kind::kExited, WEXITSTATUS(wait_status), false, false};
}

std::string ExitStatus::text() const {
  if (kind == Kind::kExited) {
    return "exited with code " + std::to_string(value);
  }
  return "was killed by signal " + std::to_string(value) + " (" + signal_name(value) + ")" +
         (has_core ? "; core dumped" : "") + (out_of_memory ? " by the kernel: out of memory" : "");
}

std::string signal_name(int signo) {
  const char* name = ::sigabbrev_np(signo);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signo);
}

}  // namespace hvd::launch
