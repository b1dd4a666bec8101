// take_mpirun_option() says what becomes of an option of mpirun (Open MPI, MPICH, Intel MPI) in a command line where
// somebody has written hvdrun in its place; way_of_mpirun() reads its variables for how other hosts are reached. Pure.
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

// MpirunWay is how an mpirun would reach other hosts.
struct MpirunWay {
  std::string rsh;         // a command, as --rsh has it; empty: SSH
  std::string ssh_port{};  // of SSH then; empty: the usual one
  std::string told_by{};   // the variables or options that say so; empty: none does
  bool is_ssh = false;     // the command is the usual ssh, with more words
};

// `agent` and `args`: values of Open MPI's plm_rsh_agent and plm_rsh_args in the command line; empty: not given. Then
// those of their variables in `environment` ("NAME=value") count.
MpirunWay way_of_mpirun(std::string agent, std::string args, const std::vector<std::string>& environment);

}  // namespace hvd::cli
