// These functions say where the kernel put a core dump, by the rules of core(5).
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd::launch {

struct CoreDump {
  pid_t pid = 0;
  int signo = 0;
  std::string cwd;  // of the process, when it was started
  std::string host;
};

// Returns words, from the contents of kernel.core_pattern: "in /tmp/core.123", "handed to
// /usr/lib/systemd/systemd-coredump; try: coredumpctl info 123". A part that only the dumped process knew is a "*".
// Pure.
std::string core_place(const std::string& pattern, bool uses_pid, const CoreDump& dump);

// Returns the same from this machine's setting; empty when no such file exists.
std::string find_core(const CoreDump& dump);

}  // namespace hvd::launch
