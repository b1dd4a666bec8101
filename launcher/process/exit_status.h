// ExitStatus says how a process ended. Value type.
#pragma once

#include <cstdint>
#include <string>

namespace hvd::launch {

struct ExitStatus {
  enum class Kind : std::uint8_t { kExited = 0, kSignalled = 1 };
  Kind kind = Kind::kExited;
  int value = 0;               // exit code, or signal number
  bool has_core = false;       // a core dump was written
  bool out_of_memory = false;  // it was the kernel, for lack of memory (OomWatch)

  // Decodes waitpid(2)'s status. The core-dump bit does not change the code.
  static ExitStatus from_wait(int wait_status);

  [[nodiscard]] bool is_success() const { return kind == Kind::kExited && value == 0; }
  // Returns the code in the form that a shell uses: the exit code, or 128 + signal.
  [[nodiscard]] int shell_code() const { return kind == Kind::kExited ? value : 128 + value; }
  // Returns "exited with code 3", or "was killed by signal 11 (SIGSEGV); core dumped".
  [[nodiscard]] std::string text() const;

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

// ExitDetail is what its node knows of an end beyond the status, in words; empty: nothing.
struct ExitDetail {
  std::string memory;  // what speaks for the kernel's memory killer
  std::string core;    // where the core dump is

  friend bool operator==(const ExitDetail&, const ExitDetail&) = default;
};

// Returns "SIGTERM", or "signal 99" for one without a name.
std::string signal_name(int signo);

}  // namespace hvd::launch
