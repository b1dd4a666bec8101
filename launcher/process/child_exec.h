// This is the child's side between fork and exec. It makes only async-signal-safe calls: another thread of the parent
// may have held any lock at the moment of the fork.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hvd::launch {

// ChildPlan is everything the child needs. The parent prepares it, since the child must not allocate.
struct ChildPlan {
  const char* path = nullptr;  // resolved program
  char* const* argv = nullptr;
  char* const* shell_argv = nullptr;  // of the shell that runs a text file which names no interpreter
  char* const* envp = nullptr;
  const char* cwd = nullptr;  // nullptr: the parent's
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  int error_fd = -1;  // close-on-exec; gets a ChildFailure when exec does not happen
  pid_t parent = 0;   // who must be alive; the child dies with it when dies_with_parent
  bool dies_with_parent = true;
  bool is_readable_by_parent = false;
  int death_signal = 0;
  const cpu_set_t* affinity = nullptr;  // affinity_bytes of processors that it may run on; 0 bytes: the parent's
  std::size_t affinity_bytes = 0;
  std::uint64_t open_files = 0;  // RLIMIT_NOFILE, the soft one; 0: the parent's
  bool new_session = true;       // its own session and process group, out of reach of the terminal's Ctrl-C
};

enum class ChildStage : std::int32_t { kSetup = 0, kChdir = 1, kExec = 2, kBind = 3 };

// ChildFailure goes up the error pipe whole or not at all, since it is smaller than PIPE_BUF.
struct ChildFailure {
  ChildStage stage = ChildStage::kSetup;
  std::int32_t sys_errno = 0;
};

[[noreturn]] void run_child(const ChildPlan& plan);

}  // namespace hvd::launch
