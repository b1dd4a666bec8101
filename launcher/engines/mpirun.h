// This is Open MPI's mpirun as an engine. It starts one agent per rank where the placement says, and owns them: what
// the agent starts is a rank of MPI. All knowledge of Open MPI is here, and is pure except for find_open_mpi.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/placement/placement.h"
#include "launcher/wire/engine_call.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct MpirunOptions {
  std::string agent_path;                // the same on every node
  std::vector<std::string> environment;  // of hvdrun
  std::vector<std::string> args;         // the user's --mpi-args
  std::vector<std::string> binding;      // the user's --binding-args, in place of our own
  bool is_root = false;                  // Open MPI wants to be told that this is meant
  std::uint64_t open_files = 0;          // of hvdrun, as it was started
};

// Returns the words that put each rank of `placement` in its place; `place` is where the agents call. kHostsFile stands
// for the hosts where their names are too long for one word.
std::vector<std::string> mpirun_words(const Placement& placement, const MpirunOptions& options, const CallPlace& place);

// Returns the command with the key in its environment, and without variables of an mpirun around hvdrun.
EngineCommand mpirun_command(const Placement& placement, const MpirunOptions& options, const CallPlace& place,
                             const CallKey& key);

EngineFailure mpirun_failure(std::string_view output);

// Returns "Open MPI 4.1.4" from the output of `mpirun --version`, or an Error for another MPI or one before 4.
Result<std::string> open_mpi_in(std::string_view version_output);
// Asks the mpirun that PATH in `environment` leads to. Errors say what to install.
Result<std::string> find_open_mpi(const std::vector<std::string>& environment);

}  // namespace hvd::launch
