// Config: the rank environment as one checked value. The only reader of the environment in the runtime.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"
#include "runtime/engine/engine.h"
#include "runtime/mpi/mpi_job.h"

namespace hvd {

struct Config {
  RankMap map;               // of size 1 without a rank environment
  std::string agent_socket;  // empty: no hvdrun above us
  std::string agent_token;
  MpiSettings mpi;
  std::string alone;  // what to say of a job of one rank that looks like one of several; empty: nothing
  EngineOptions engine;
  Duration start_timeout = std::chrono::seconds(60);
  std::string tuning;  // a table or its file; empty: none
  LogLevel log_level = LogLevel::kWarning;
  std::optional<RankMap> place;  // what the program is told of its place, where that is not `map`
};

// The value of a variable, or NULL.
using Environment = std::function<const char*(const char* name)>;

// kInvalid names the variable, its value, and what it should be.
Result<Config> config_from(const Environment& environment);
// From this process's environment.
Result<Config> config_from_process();

}  // namespace hvd
