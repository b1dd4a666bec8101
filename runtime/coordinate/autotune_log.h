// AutotuneLog reports what the Autotuner has tried, on the coordinator: in the job's log, and in a file with Horovod's
// columns if one is named.
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
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/controller/autotuner.h"

namespace hvd {

class AutotuneLog {
 public:
  // Creates the file, or replaces it; an empty path names none. If it cannot be written, that is logged and the search
  // goes on, because training matters more.
  AutotuneLog(const std::string& path, bool is_hierarchical, bool has_cache, Log& log);
  void report(const Autotuner::News& news);

 private:
  Result<void> write(const std::string& line);
  // Logs a failure, after which there is no file any more.
  void keep_if(const Result<void>& written);

  Log& log_;
  Fd fd_;
  std::string first_columns_;
};

}  // namespace hvd
