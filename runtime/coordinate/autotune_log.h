// AutotuneLog is the file to which the coordinator writes what the Autotuner has tried, in Horovod's columns:
//
//   hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,
//   tensor_fusion_threshold,score
//
// Each row is one line. The threshold is in MiB and the score in bytes per microsecond; the last row is the setting
// that stays. The first four columns are not tuned here: collectives between nodes are always hierarchical, and never a
// torus.
// Thread: engine only.
#pragma once

#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/controller/autotuner.h"

namespace hvd {

class AutotuneLog {
 public:
  // Creates the file, or replaces it.
  static Result<AutotuneLog> create(const std::string& path, bool is_hierarchical, bool has_cache);
  Result<void> write(const Autotuner::Trial& trial);

 private:
  AutotuneLog(Fd fd, std::string first_columns) : fd_(std::move(fd)), first_columns_(std::move(first_columns)) {}
  Result<void> write(const std::string& line);

  Fd fd_;
  std::string first_columns_;
};

}  // namespace hvd
