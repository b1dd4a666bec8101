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

// Returns the number that the engine has for the job; empty: it has not said one, or has it for another job now.
std::string engine_number(const JobRecord& job);

class EngineJobs {
 public:
  // The store's file must be there (JobStore::open).
  static Result<EngineJobs> open(const StateDir& dir, Duration patience = Database::kPatience);

  // Adds a job whose name, uuid and output are set, before `engine` ("slurm") gets it, and sets its engine_job. Its
  // name must be free; where `is_named` is false it gets a number after it.
  Result<void> add(JobRecord& job, const std::string& engine, bool is_named);
  // The engine has taken the job under this number. An older job that had the number before has it no more.
  Result<void> set_number(JobRecord& job, const std::string& number);
  // Returns all, the oldest first.
  Result<std::vector<JobRecord>> all();
  // Finds one by its name or by "slurm:12"; nothing: there is none.
  Result<std::optional<JobRecord>> find(const std::string& reference);
  // Finds one again that was found before.
  Result<std::optional<JobRecord>> again(const JobRecord& job);
  // Keeps what changes in a job's life: state, times, codes, error and nodes.
  Result<void> update(const JobRecord& job);
  Result<void> remove(const JobRecord& job);

 private:
  explicit EngineJobs(Database database) : database_(std::move(database)) {}
  Result<std::string> free_name(const std::string& wanted, bool is_named);
  Result<std::optional<JobRecord>> first(const std::string& where, const std::vector<SqlValue>& arguments);

  Database database_;
};

}  // namespace hvd::launch
