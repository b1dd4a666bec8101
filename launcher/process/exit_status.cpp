#include "launcher/process/exit_status.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>

namespace hvd::launch {
namespace {

// libc has such a table only since glibc 2.32, and a wheel serves older systems.
struct SignalName {
  int number;
  const char* name;
};
constexpr auto kSignalNames = std::to_array<SignalName>({
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},   {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
    {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},     {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
    {SIGSEGV, "SIGSEGV"},     {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"},   {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
    {SIGSTKFLT, "SIGSTKFLT"}, {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},   {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"},     {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},     {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"}, {SIGIO, "SIGPOLL"},   {SIGPWR, "SIGPWR"},
    {SIGSYS, "SIGSYS"},
});

}  // namespace

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
  const auto* const found = std::find_if(kSignalNames.begin(), kSignalNames.end(),
                                         [&](const SignalName& known) { return known.number == signo; });
  return found != kSignalNames.end() ? found->name : "signal " + std::to_string(signo);
}

}  // namespace hvd::launch
