// Config is the rank environment as one checked value. No other C++ file of the runtime reads its own process's
// environment, so that every variable of libhvd is checked at one place and before the job is joined.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"
#include "runtime/engine/engine.h"
#include "runtime/mpi/mpi_job.h"

namespace hvd {

struct Config {
  RankMap map;               // the default is a job of one rank, when there is no rank environment
  std::string agent_socket;  // empty: hvdrun did not start this process
  std::string agent_token;
  MpiSettings mpi;
  std::string no_mpi;           // the warning for a setting that asks for MPI where there is none; empty: no warning
  std::string alone;            // the warning for a job of one rank that looks like one of several; empty: no warning
  bool has_no_launcher = true;  // no variable says that a launcher has started this process
  EngineOptions engine;
  Duration start_timeout = std::chrono::seconds(60);
  bool has_own_timeout = false;  // the caller gave it, not HOROVOD_START_TIMEOUT
  std::string tuning;            // a tuning table or the name of its file; empty: none
  LogLevel log_level = LogLevel::kWarning;
  std::optional<RankMap> place;   // the place that the program sees, if it is not `map`
  std::optional<int> slot;        // the local rank that it sees, in a generation of an elastic job
  std::vector<int> thread_cores;  // by local rank, or one for all: cores for the engine's own thread; empty: any
};

// Reads the value of a variable; returns NULL if it is not set.
using Environment = std::function<const char*(const char* name)>;

// kInvalid names the variable, its value, and what it should be.
Result<Config> config_from(const Environment& environment);
// Reads this process's environment.
Result<Config> config_from_process();

// Chooses the core of the engine's thread and the GPU that go by the rank's place on its host. With mpirun the place is
// known only once the ranks have met. kInvalid: there are fewer cores than ranks of the host.
Result<void> choose_by_place(Config& config);

}  // namespace hvd
