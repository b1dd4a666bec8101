// spawn() starts a program with its output in pipes, or says why it could not be started.
//
// Thread: any, but a child that dies with its parent dies with the *thread* that spawned it (prctl(2)), so spawn from a
// thread that lives as long as the process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/cpu_list.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct SpawnOptions {
  std::vector<std::string> argv;         // at least one
  std::vector<std::string> environment;  // "NAME=value"; all of it, nothing is inherited
  std::string cwd;                       // empty: this process's
  // These are the child's standard descriptors; -1 is /dev/null for input, and this process's own for output.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  bool dies_with_parent = true;
  int death_signal = SIGKILL;          // what it dies of then; SIGTERM leaves it a chance to clean up
  bool is_readable_by_parent = false;  // this process and its children may trace it, also where Yama restricts that
  bool new_session = true;
  std::uint64_t open_files = 0;  // its limit on them (base/open_files.h); 0: this process's
  CpuList cpus;                  // that it and its children may run on; empty: as this process
};

// Returns the new process. Errors name the program or directory and where it was sought (kNotFound: no such program).
Result<pid_t> spawn(const SpawnOptions& options);

// Returns the path of `program`: itself when it holds a slash (relative to `cwd`), otherwise the first executable in
// `search_path` (a PATH value).
Result<std::string> find_program(const std::string& program, const std::string& search_path, const std::string& cwd);

// Returns the value of NAME in a list of "NAME=value", or nothing. The last one counts.
std::string value_in(const std::vector<std::string>& environment, const std::string& name);

}  // namespace hvd::launch
