#include "launcher/service/engine_jobs.h"

#include <algorithm>

namespace hvd::launch {
namespace {

// What follows it in engine_job makes it unique, and is no number of the engine's.
constexpr char kUnnumbered = '?';

constexpr const char* kEngineColumns =
    "SELECT engine_job, uuid, name, tool, node_count, process_count, properties, state, created_ms, changed_ms,"
    " started_ms, ended_ms, exit_code, status, error_code, error_message, output, nodes FROM engine_job ";

JobRecord engine_record(const SqlRow& row) {
  JobRecord job;
  std::size_t at = 0;
  const auto integer = [&] { return row.integer(at++); };
  const auto text = [&] { return row.text(at++); };
  job.engine_job = text();
  job.cluster = job.engine_job.substr(0, job.engine_job.find(':'));
  job.uuid = text();
  job.name = text();
  job.tool = text();
  job.node_count = static_cast<int>(integer());
  job.process_count = static_cast<int>(integer());
  job.properties = text();
  job.state = state_of(text()).value_or(ExecutionState::kFailed);
  job.created_ms = integer();
  job.changed_ms = integer();
  job.started_ms = integer();
  job.ended_ms = integer();
  job.exit_code = row.is_null(at) ? std::nullopt : std::optional(static_cast<int>(row.integer(at)));
  ++at;
  job.status = static_cast<int>(integer());
  job.error = {text(), "", ""};
  job.error.message = text();
  job.output = text();
  job.nodes = nodes_of_text(text());
  return job;
}

}  // namespace

std::string engine_number(const JobRecord& job) {
  const bool has_none = job.engine_job.find(kUnnumbered) != std::string::npos;
  return has_none ? "" : job.engine_job.substr(job.engine_job.find(':') + 1);
}

const char* engine_job_table() {
  return "CREATE TABLE IF NOT EXISTS engine_job(engine_job TEXT PRIMARY KEY, uuid TEXT NOT NULL UNIQUE,"
         " name TEXT NOT NULL UNIQUE, tool TEXT NOT NULL, node_count INTEGER NOT NULL, process_count INTEGER NOT NULL,"
         " properties TEXT NOT NULL, state TEXT NOT NULL, created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL,"
         " started_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER NOT NULL DEFAULT 0, exit_code INTEGER,"
         " status INTEGER NOT NULL DEFAULT 0, error_code TEXT NOT NULL DEFAULT '', error_message TEXT NOT NULL"
         " DEFAULT '', output TEXT NOT NULL, nodes TEXT NOT NULL DEFAULT '[]');";
}

Result<EngineJobs> EngineJobs::open(const StateDir& dir, Duration patience) {
  HVD_TRY_ASSIGN(Database database, Database::open(dir.database()));
  database.set_patience(patience);
  return EngineJobs(std::move(database));
}

Result<std::string> EngineJobs::free_name(const std::string& wanted, bool is_named) {
  std::string name = wanted.substr(0, kMostJobName);
  for (std::int64_t number = 2;; ++number) {
    HVD_TRY_ASSIGN(const auto rows, database_.query("SELECT 1 FROM job WHERE name = ? UNION SELECT 1 FROM engine_job "
                                                    "WHERE name = ?",
                                                    {name, name}));
    if (rows.empty()) {
      return name;
    }
    if (is_named) {
      return Error(Code::kInvalid, "there is a job '" + wanted +
                                       "' already; give another --name, or remove it first: hvdrun rm " + wanted);
    }
    const std::string tail = "-" + std::to_string(number);
    name = wanted.substr(0, kMostJobName - tail.size()) + tail;
  }
}

Result<void> EngineJobs::add(JobRecord& job, const std::string& engine, bool is_named) {
  return database_.in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(job.name, free_name(job.name, is_named));
    job.engine_job = engine + ":" + kUnnumbered + job.uuid;
    HVD_TRY(database_.change(
        "INSERT INTO engine_job(engine_job, uuid, name, tool, node_count, process_count, properties,"
        " state, created_ms, changed_ms, output) VALUES(?,?,?,?,?,?,?,?,?,?,?)",
        {job.engine_job, job.uuid, job.name, job.tool, sql_number(job.node_count), sql_number(job.process_count),
         job.properties, std::string(state_name(job.state)), job.created_ms, job.changed_ms, job.output}));
    return {};
  });
}

Result<void> EngineJobs::set_number(JobRecord& job, const std::string& number) {
  const std::string numbered = job.engine_job.substr(0, job.engine_job.find(':') + 1) + number;
  const auto set = [&]() -> Result<void> {
    HVD_TRY(database_.change("UPDATE engine_job SET engine_job = engine_job || ? || uuid WHERE engine_job = ?",
                             {std::string(1, kUnnumbered), numbered}));
    job.engine_job = numbered;
    // Somebody may have taken a submission that took long for one that had ended.
    HVD_TRY(update(job));
    HVD_TRY(database_.change("UPDATE engine_job SET engine_job = ? WHERE uuid = ?", {numbered, job.uuid}));
    return {};
  };
  return database_.in_transaction(set);
}

Result<std::vector<JobRecord>> EngineJobs::all() {
  HVD_TRY_ASSIGN(const auto rows, database_.query(std::string(kEngineColumns) + "ORDER BY created_ms, rowid"));
  std::vector<JobRecord> jobs;
  std::transform(rows.begin(), rows.end(), std::back_inserter(jobs), engine_record);
  return jobs;
}

Result<std::optional<JobRecord>> EngineJobs::first(const std::string& where, const std::vector<SqlValue>& arguments) {
  HVD_TRY_ASSIGN(const auto rows, database_.query(std::string(kEngineColumns) + where, arguments));
  return rows.empty() ? std::optional<JobRecord>() : std::optional(engine_record(rows.front()));
}

Result<std::optional<JobRecord>> EngineJobs::find(const std::string& reference) {
  return first("WHERE name = ? OR engine_job = ?", {reference, reference});
}

Result<std::optional<JobRecord>> EngineJobs::again(const JobRecord& job) {
  return first("WHERE uuid = ?", {job.uuid});
}

Result<void> EngineJobs::update(const JobRecord& job) {
  HVD_TRY(database_.change(
      "UPDATE engine_job SET state = ?, changed_ms = ?, started_ms = ?, ended_ms = ?, exit_code = ?, status = ?,"
      " error_code = ?, error_message = ?, nodes = ? WHERE uuid = ?",
      {std::string(state_name(job.state)), job.changed_ms, job.started_ms, job.ended_ms,
       job.exit_code ? sql_number(*job.exit_code) : SqlValue(), sql_number(job.status), job.error.code,
       job.error.message, nodes_text(job.nodes), job.uuid}));
  return {};
}

Result<void> EngineJobs::remove(const JobRecord& job) {
  HVD_TRY(database_.change("DELETE FROM engine_job WHERE uuid = ?", {job.uuid}));
  return {};
}

}  // namespace hvd::launch
