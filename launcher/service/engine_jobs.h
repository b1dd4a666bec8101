// EngineJobs holds the records of jobs that were submitted to an engine (Slurm), beside those that the service runs
// itself. The engine queues and runs them, so they need no cluster of the service and no supervisor; what the engine
// said last is kept here. Their names and those of the service's own jobs are one set.
//
// Thread: one at a time; processes: any number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/service/database.h"
#include "launcher/service/job_record.h"
#include "launcher/service/state_dir.h"

namespace hvd::launch {

// Returns the statement that creates the table where it is missing.
const char* engine_job_table();

class EngineJobs {
 public:
  // The store's file must be there (JobStore::open).
  static Result<EngineJobs> open(const StateDir& dir, Duration patience = Database::kPatience);

  // Returns a name that no job has: the wanted one, or where `is_named` is false one with a number after it.
  Result<std::string> free_name(const std::string& wanted, bool is_named);
  // Adds a job whose engine_job, name, uuid and output are set.
  Result<void> add(const JobRecord& job);
  // Returns all, the oldest first.
  Result<std::vector<JobRecord>> all();
  // Finds one by its name or by "slurm:12"; nothing: there is none.
  Result<std::optional<JobRecord>> find(const std::string& reference);
  // Keeps what changes in a job's life: state, times, codes, error and nodes.
  Result<void> update(const JobRecord& job);
  Result<void> remove(const std::string& engine_job);

 private:
  explicit EngineJobs(Database database) : database_(std::move(database)) {}

  Database database_;
};

}  // namespace hvd::launch
