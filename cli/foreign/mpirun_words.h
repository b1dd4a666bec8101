// take_mpirun_option() says what becomes of an option of mpirun (Open MPI, MPICH, Intel MPI) in a command line where
// somebody has written hvdrun in its place. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

struct TakenOption {
  std::size_t count = 0;               // words that it is, with its values
  std::vector<std::string> here = {};  // ours in its place; none: it has no effect
};

// Looks at the option at words[at], which is none of hvdrun's. Nothing: it is none of mpirun's either. kInvalid: the
// ranks need what it says, and hvdrun writes it otherwise; the message says how.
Result<std::optional<TakenOption>> take_mpirun_option(const std::vector<std::string>& words, std::size_t at);

}  // namespace hvd::cli
