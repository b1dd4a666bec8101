#include "launcher/service/job_store.h"

#include <unistd.h>

#include <algorithm>

#include "launcher/service/engine_jobs.h"
#include "launcher/service/scheduler.h"
#include "launcher/state/exit_codes.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::int64_t kSchemaVersion = 2;
constexpr auto kOpenTime = std::chrono::seconds(30);

constexpr const char* kTables =
    "CREATE TABLE cluster(name TEXT PRIMARY KEY, text TEXT NOT NULL, created_ms INTEGER NOT NULL);"
    "CREATE TABLE node(cluster TEXT NOT NULL REFERENCES cluster(name) ON DELETE CASCADE, place INTEGER NOT NULL,"
    " name TEXT NOT NULL UNIQUE, drained INTEGER NOT NULL DEFAULT 0, job INTEGER, leaving_until_ms INTEGER NOT NULL"
    " DEFAULT 0, PRIMARY KEY(cluster, place));"
    "CREATE TABLE job(id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,"
    " cluster TEXT NOT NULL, experiment TEXT NOT NULL, tool TEXT NOT NULL, node_count INTEGER NOT NULL,"
    " process_count INTEGER NOT NULL, priority INTEGER NOT NULL, priority_word TEXT NOT NULL, segment TEXT NOT NULL,"
    " properties TEXT NOT NULL, state TEXT NOT NULL, phase INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " changed_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER NOT NULL DEFAULT 0,"
    " exit_code INTEGER, status INTEGER NOT NULL DEFAULT 0, error_code TEXT NOT NULL DEFAULT '',"
    " error_message TEXT NOT NULL DEFAULT '', error_details TEXT NOT NULL DEFAULT '', output TEXT NOT NULL DEFAULT '',"
    " nodes TEXT NOT NULL DEFAULT '[]', rank_files TEXT NOT NULL DEFAULT '[]', attempts INTEGER NOT NULL DEFAULT 0,"
    " pid INTEGER NOT NULL DEFAULT 0, pid_start INTEGER NOT NULL DEFAULT 0, boot TEXT NOT NULL DEFAULT '',"
    " leave_ms INTEGER NOT NULL DEFAULT 0, is_local INTEGER NOT NULL DEFAULT 0,"
    " min_nodes INTEGER NOT NULL DEFAULT 0, max_nodes INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX job_active ON job(id) WHERE state IN ('queued', 'running', 'terminating');"
    "PRAGMA user_version = 2;";

// Schema 1 knew no elastic jobs.
constexpr const char* kFromSchema1 =
    "ALTER TABLE job ADD COLUMN min_nodes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE job ADD COLUMN max_nodes INTEGER NOT NULL DEFAULT 0;"
    "PRAGMA user_version = 2;";

constexpr const char* kBegunIndex =
    "CREATE INDEX IF NOT EXISTS job_begun ON job(id) WHERE state IN ('running', 'terminating');";

// This table holds what jobs have found out about nodes. Older programs, which know schema 2, leave it alone.
constexpr const char* kHealthTable =
    "CREATE TABLE IF NOT EXISTS node_health(cluster TEXT NOT NULL REFERENCES cluster(name) ON DELETE CASCADE,"
    " name TEXT NOT NULL, was_reached INTEGER NOT NULL, failures INTEGER NOT NULL, unusable_until_ms INTEGER NOT NULL,"
    " why TEXT NOT NULL, PRIMARY KEY(cluster, name));";

Result<void> prepare(Database& database, const StateDir& dir) {
  const auto version_of = [&database]() -> Result<std::int64_t> {
    HVD_TRY_ASSIGN(const auto rows, database.query("PRAGMA user_version"));
    return rows.empty() ? 0 : rows.front().integer(0);
  };
  HVD_TRY_ASSIGN(std::int64_t version, version_of());
  if (version < kSchemaVersion) {
    HVD_TRY(database.in_transaction([&database, &version_of]() -> Result<void> {
      HVD_TRY_ASSIGN(const std::int64_t now_there, version_of());
      return now_there == 0 ? database.run(kTables) : now_there == 1 ? database.run(kFromSchema1) : Result<void>();
    }));
    HVD_TRY_ASSIGN(version, version_of());
  }
  HVD_TRY(database.run(kBegunIndex));
  // Older programs, which know schema 1, leave this table alone.
  HVD_TRY(database.run(engine_job_table()));
  HVD_TRY(database.run(kHealthTable));
  HVD_TRY(database.run(AvoidedNodes::table()));
  if (version != kSchemaVersion) {
    return Error(Code::kInvalid, "the jobs' records (" + dir.database() + ") have schema " + std::to_string(version) +
                                     ", which a newer hvdrun has made; this one knows schema " +
                                     std::to_string(kSchemaVersion) +
                                     ": use the newer one, or set XDG_STATE_HOME to another place");
  }
  return {};
}

constexpr const char* kJobColumns =
    "SELECT id, uuid, name, cluster, experiment, tool, node_count, process_count, priority, priority_word, segment,"
    " properties, state, phase, created_ms, changed_ms, started_ms, ended_ms, exit_code, status, error_code,"
    " error_message, error_details, output, nodes, rank_files, attempts, pid, pid_start, boot, leave_ms, is_local,"
    " min_nodes, max_nodes FROM job ";
constexpr const char* kActive = "state IN ('queued', 'running', 'terminating')";
constexpr const char* kBegun = "state IN ('running', 'terminating')";

// A job is given up after this many attempts: a supervisor that dies each time before it starts anything would
// otherwise be restarted for ever.
constexpr std::int64_t kMostAttempts = 20;

JobRecord job_record(const SqlRow& row) {
  JobRecord job;
  std::size_t at = 0;
  const auto integer = [&] { return row.integer(at++); };
  const auto text = [&] { return row.text(at++); };
  job.id = integer();
  job.uuid = text();
  job.name = text();
  job.cluster = text();
  job.experiment = text();
  job.tool = text();
  job.node_count = static_cast<int>(integer());
  job.process_count = static_cast<int>(integer());
  job.priority = static_cast<int>(integer());
  job.priority_word = text();
  job.segment = text();
  job.properties = text();
  job.state = state_of(text()).value_or(ExecutionState::kFailed);
  job.phase = static_cast<Phase>(std::clamp<std::int64_t>(integer(), 0, 3));
  job.created_ms = integer();
  job.changed_ms = integer();
  job.started_ms = integer();
  job.ended_ms = integer();
  job.exit_code = row.is_null(at) ? std::nullopt : std::optional(static_cast<int>(row.integer(at)));
  ++at;
  job.status = static_cast<int>(integer());
  job.error = {text(), "", ""};
  job.error.message = text();
  job.error.details = text();
  job.output = text();
  job.nodes = nodes_of_text(text());
  job.rank_files = names_of_text(text());
  job.attempts = static_cast<int>(integer());
  job.pid = static_cast<int>(integer());
  job.pid_start = integer();
  job.boot = text();
  job.leave_ms = integer();
  job.is_local = integer() != 0;
  job.min_nodes = static_cast<int>(integer());
  job.max_nodes = static_cast<int>(integer());
  return job;
}

Error no_job(const std::string& reference) {
  return Error(Code::kNotFound,
               "there is no job '" + shown_text(reference) + "'; hvdrun ps --all shows those that there are");
}

Result<bool> is_name_taken(Database& database, const std::string& name) {
  HVD_TRY_ASSIGN(
      const auto rows,
      database.query("SELECT 1 FROM job WHERE name = ? UNION SELECT 1 FROM engine_job WHERE name = ?", {name, name}));
  return !rows.empty();
}

// Returns the indexes of those of the nodes that have these names.
std::vector<int> places_of(const std::vector<std::string>& names, const std::vector<NodeRecord>& nodes) {
  std::vector<int> places;
  for (std::size_t place = 0; place < nodes.size(); ++place) {
    if (std::find(names.begin(), names.end(), nodes[place].host.name) != names.end()) {
      places.push_back(static_cast<int>(place));
    }
  }
  return places;
}

// Returns what is known of a node, by its name.
NodeHealth health_of(const std::vector<NodeRecord>& nodes, const std::string& name) {
  const auto places = places_of({name}, nodes);
  return places.empty() ? NodeHealth() : nodes[static_cast<std::size_t>(places.front())].health;
}

Result<void> queue_again(Database& database, std::int64_t id, std::int64_t now_ms) {
  HVD_TRY(database.change(
      "UPDATE job SET state = 'queued', phase = 0, changed_ms = ?, started_ms = 0, pid = 0, nodes = '[]'"
      " WHERE id = ?",
      {now_ms, id}));
  return {};
}

constexpr int kStoppedStatus = 143;  // 128 + SIGTERM

RecordedEnd terminated(int status) {
  return {ExecutionState::kFailed,
          std::nullopt,
          status,
          {kStoppedError, "The specified job has been terminated by the user", ""}};
}

// Returns until when an agent of the job that nobody reaches may still be there.
std::int64_t leaving_until(const JobRecord& job, std::int64_t now_ms) {
  return now_ms + std::min(job.leave_ms, kLongestLeavingMs);
}

}  // namespace

Result<JobStore> JobStore::open(const StateDir& dir, Now now, Duration patience) {
  // Only one process at a time creates the file and its tables.
  std::optional<Fd> alone;
  if (::access(dir.database().c_str(), F_OK) != 0) {
    HVD_TRY_ASSIGN(alone, wait_for_lock(dir.locks() + "/opening", Deadline::after(kOpenTime)));
  }
  HVD_TRY_ASSIGN(Database database, Database::open(dir.database()));
  HVD_TRY(prepare(database, dir));
  database.set_patience(patience);
  return JobStore(std::move(database), std::move(now));
}

JobStore::JobStore(Database database, Now now)
    : database_(std::make_unique<Database>(std::move(database))), now_(std::move(now)), clusters_(*database_, now_) {}

Result<std::vector<JobRecord>> JobStore::select_jobs(const std::string& rest, const std::vector<SqlValue>& arguments) {
  HVD_TRY_ASSIGN(const auto rows, database_->query(kJobColumns + rest, arguments));
  std::vector<JobRecord> jobs;
  jobs.reserve(rows.size());
  std::transform(rows.begin(), rows.end(), std::back_inserter(jobs), job_record);
  return jobs;
}

Result<JobRecord> JobStore::add_job(JobRecord job, bool is_named) {
  return database_->in_transaction([&]() -> Result<JobRecord> {
    const std::string wanted = job.name;
    HVD_TRY_ASSIGN(bool is_taken, is_name_taken(*database_, wanted));
    if (is_taken && is_named) {
      return Error(Code::kInvalid, "there is a job '" + wanted +
                                       "' already; give another --name, or remove it first: hvdrun rm " + wanted);
    }
    HVD_TRY_ASSIGN(const auto newest, database_->query("SELECT max(id) FROM job"));
    for (std::int64_t number = 2; is_taken; ++number) {
      constexpr std::int64_t kMostTries = 100;
      if (number == kMostTries) {
        number = std::max(newest.front().integer(0) + 1, kMostTries);  // most lower numbers are taken
      }
      const std::string tail = "-" + std::to_string(number);
      rename_job(job, wanted.substr(0, kMostJobName - tail.size()) + tail);
      HVD_TRY_ASSIGN(is_taken, is_name_taken(*database_, job.name));
    }
    HVD_TRY_ASSIGN(const bool has_cluster, clusters_.has(job.cluster));
    if (!has_cluster) {
      return Error(Code::kNotFound, "the cluster '" + job.cluster + "' has been removed");
    }
    job.state = ExecutionState::kQueued;
    job.phase = Phase::kWaiting;
    job.created_ms = job.changed_ms = now_();
    HVD_TRY(database_->change(
        "INSERT INTO job(uuid, name, cluster, experiment, tool, node_count, process_count, priority, priority_word,"
        " segment, properties, state, phase, created_ms, changed_ms, leave_ms, min_nodes, max_nodes)"
        " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        {job.uuid, job.name, job.cluster, job.experiment, job.tool, sql_number(job.node_count),
         sql_number(job.process_count), sql_number(job.priority), job.priority_word, job.segment, job.properties,
         std::string(state_name(job.state)), std::int64_t{0}, job.created_ms, job.changed_ms, job.leave_ms,
         sql_number(job.min_nodes), sql_number(job.max_nodes)}));
    job.id = database_->last_id();
    return job;
  });
}

Result<JobRecord> JobStore::job(std::int64_t id) {
  HVD_TRY_ASSIGN(auto jobs, select_jobs("WHERE id = ?", {id}));
  return jobs.empty() ? Result<JobRecord>(no_job(std::to_string(id))) : Result<JobRecord>(std::move(jobs.front()));
}

Result<JobRecord> JobStore::job(const std::string& reference) {
  HVD_TRY_ASSIGN(auto jobs, select_jobs("WHERE name = ?", {reference}));
  if (!jobs.empty()) {
    return std::move(jobs.front());
  }
  const std::optional<std::int64_t> id = parse_number<std::int64_t>(reference);
  return id ? job(*id) : Result<JobRecord>(no_job(reference));
}

Result<std::vector<JobRecord>> JobStore::active_jobs() {
  return select_jobs(std::string("WHERE ") + kActive + " ORDER BY id", {});
}

// Each waiting job asks at each change, so what it costs must not grow with the number of those that wait.
Result<std::vector<JobRecord>> JobStore::neighbours_of(std::int64_t id) {
  HVD_TRY_ASSIGN(auto jobs, select_jobs(std::string("WHERE ") + kBegun + " ORDER BY id", {}));
  const std::string waiting = std::string("WHERE ") + kActive + " AND state = 'queued' AND id > ? ORDER BY id LIMIT 1";
  HVD_TRY_ASSIGN(auto next, select_jobs(waiting, {id}));
  if (next.empty()) {
    HVD_TRY_ASSIGN(next, select_jobs(waiting, {std::int64_t{0}}));
  }
  if (!next.empty() && next.front().id != id) {
    jobs.push_back(std::move(next.front()));
  }
  return jobs;
}

Result<std::vector<JobRecord>> JobStore::ended_jobs(std::int64_t count) {
  HVD_TRY_ASSIGN(auto jobs, select_jobs(std::string("WHERE NOT ") + kActive + " ORDER BY id DESC LIMIT ?",
                                        {count == 0 ? std::int64_t{-1} : count}));
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

Result<std::int64_t> JobStore::count_ended() {
  HVD_TRY_ASSIGN(const auto rows,
                 database_->query(std::string("SELECT (SELECT count(*) FROM job) - (SELECT count(*) FROM job "
                                              "WHERE ") +
                                  kActive + ")"));
  return rows.front().integer(0);
}

Result<bool> JobStore::is_active(const std::string& uuid) {
  HVD_TRY_ASSIGN(const auto rows,
                 database_->query(std::string("SELECT 1 FROM job WHERE uuid = ? AND ") + kActive, {uuid}));
  return !rows.empty();
}

Result<void> JobStore::remove_job(std::int64_t id) {
  return database_->in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const int gone,
                   database_->change(std::string("DELETE FROM job WHERE id = ? AND NOT ") + kActive, {id}));
    return gone == 1 ? Result<void>()
                     : Result<void>(Error(Code::kInvalid,
                                          "job " + std::to_string(id) + " has not ended, or is removed already"));
  });
}

Result<std::vector<std::string>> JobStore::plan_for(const JobRecord& own) {
  std::vector<std::string> names;
  if (own.state != ExecutionState::kQueued && own.state != ExecutionState::kRunning) {
    return names;
  }
  HVD_TRY_ASSIGN(const auto waiting,
                 database_->query("SELECT id, CASE WHEN max_nodes > 0 THEN min_nodes ELSE node_count END, priority,"
                                  " max_nodes FROM job WHERE cluster = ? AND state = 'queued'",
                                  {own.cluster}));
  HVD_TRY_ASSIGN(const auto nodes, clusters_.nodes_of(own.cluster));
  HVD_TRY_ASSIGN(const auto avoided, clusters_.avoided().now(now_()));
  std::vector<WaitingJob> jobs;
  for (const SqlRow& row : waiting) {
    jobs.push_back({row.integer(0), static_cast<int>(row.integer(1)), static_cast<int>(row.integer(2)),
                    static_cast<int>(row.integer(3))});
    if (const auto those = avoided.find(row.integer(0)); those != avoided.end()) {
      jobs.back().avoided = places_of(those->second, nodes);
    }
  }
  HVD_TRY_ASSIGN(const auto elastic,
                 database_->query("SELECT id, priority, max_nodes - (SELECT count(*) FROM node WHERE node.job = job.id)"
                                  " FROM job WHERE cluster = ? AND state = 'running' AND max_nodes > 0",
                                  {own.cluster}));
  std::vector<GrowingJob> growing;
  for (const SqlRow& row : elastic) {
    growing.push_back({row.integer(0), static_cast<int>(row.integer(1)), static_cast<int>(row.integer(2))});
  }
  std::vector<ScheduledNode> places;
  places.reserve(nodes.size());
  for (const NodeRecord& node : nodes) {
    places.push_back({node.job == 0 && !is_leaving(node.leaving_until_ms, now_()), node.is_in_service});
  }
  for (const Start& start : plan_starts(std::move(jobs), places, std::move(growing))) {
    for (const int place : start.nodes) {
      if (start.id == own.id) {
        names.push_back(nodes[static_cast<std::size_t>(place)].host.name);
      }
    }
  }
  return names;
}

Result<bool> JobStore::is_turn(std::int64_t id) {
  HVD_TRY_ASSIGN(const JobRecord own, job(id));
  HVD_TRY_ASSIGN(const std::vector<std::string> names, plan_for(own));
  return !names.empty();
}

Result<bool> JobStore::take_nodes(JobRecord& own) {
  HVD_TRY_ASSIGN(const std::vector<std::string> names, plan_for(own));
  for (const std::string& name : names) {
    HVD_TRY(clusters_.give(own.cluster, name, own.id));
    own.nodes.push_back({name, ""});
  }
  return !names.empty();
}

Result<void> JobStore::grow(std::int64_t id) {
  return database_->in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(JobRecord own, job(id));
    HVD_TRY_ASSIGN(const bool has_grown, own.state == ExecutionState::kRunning ? take_nodes(own) : Result<bool>(false));
    if (has_grown) {
      HVD_TRY(database_->change("UPDATE job SET nodes = ? WHERE id = ?", {nodes_text(own.nodes), id}));
    }
    return {};
  });
}

Result<std::vector<NodeRecord>> JobStore::nodes_of_job(std::int64_t id) {
  HVD_TRY_ASSIGN(const JobRecord own, job(id));
  HVD_TRY_ASSIGN(std::vector<NodeRecord> nodes, clusters_.nodes_of(own.cluster));
  std::erase_if(nodes, [id](const NodeRecord& node) { return node.job != id; });
  return nodes;
}

Result<void> JobStore::give_back(std::int64_t id, const std::string& node, bool is_lost) {
  return database_->in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(JobRecord own, job(id));
    HVD_TRY_ASSIGN(const bool has_freed, clusters_.free_drained(id, node, is_lost ? leaving_until(own, now_()) : 0));
    if (!has_freed) {
      return {};  // it is not drained any more, or the job has ended
    }
    std::erase_if(own.nodes, [&node](const JobNode& other) { return other.name == node; });
    HVD_TRY(database_->change("UPDATE job SET nodes = ? WHERE id = ?", {nodes_text(own.nodes), id}));
    return {};
  });
}

Result<std::optional<JobRecord>> JobStore::claim(std::int64_t id, const Claimant& claimant) {
  return database_->in_transaction([&]() -> Result<std::optional<JobRecord>> {
    HVD_TRY_ASSIGN(JobRecord own, job(id));
    own.nodes.clear();
    HVD_TRY_ASSIGN(const bool has_turn, own.state == ExecutionState::kQueued ? take_nodes(own) : Result<bool>(false));
    if (!has_turn) {
      return std::optional<JobRecord>();
    }
    own.state = ExecutionState::kRunning;
    own.phase = Phase::kClaimed;
    own.started_ms = own.changed_ms = now_();
    HVD_TRY(database_->change(
        "UPDATE job SET state = 'running', phase = ?, started_ms = ?, changed_ms = ?, nodes = ?, pid = ?,"
        " pid_start = ?, boot = ?, attempts = attempts + 1 WHERE id = ?",
        {sql_number(static_cast<int>(Phase::kClaimed)), own.started_ms, own.changed_ms, nodes_text(own.nodes),
         sql_number(claimant.pid), claimant.pid_start, claimant.boot, id}));
    return std::optional<JobRecord>(std::move(own));
  });
}

Result<void> JobStore::set_phase(std::int64_t id, Phase phase) {
  HVD_TRY(database_->change("UPDATE job SET phase = ? WHERE id = ?", {sql_number(static_cast<int>(phase)), id}));
  return {};
}

Result<void> JobStore::set_leaving_time(std::int64_t id, std::int64_t leave_ms, bool is_local) {
  HVD_TRY(database_->change("UPDATE job SET leave_ms = ?, is_local = ? WHERE id = ?",
                            {leave_ms, static_cast<std::int64_t>(is_local), id}));
  return {};
}

Result<void> JobStore::set_output(std::int64_t id, const std::string& directory,
                                  const std::vector<std::string>& rank_files) {
  HVD_TRY(database_->change("UPDATE job SET output = ?, rank_files = ? WHERE id = ?",
                            {directory, names_text(rank_files), id}));
  return {};
}

Result<void> JobStore::set_addresses(std::int64_t id, const std::vector<JobNode>& known, bool has_logged_in) {
  return database_->in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(JobRecord own, job(id));
    for (JobNode& node : own.nodes) {
      for (const JobNode& other : known) {
        if (other.name == node.name && !other.address.empty()) {
          node.address = other.address;
          HVD_TRY(clusters_.set_health(own.cluster, node.name, after_success()));
          HVD_TRY(clusters_.avoided().note_reached(node.name, id));
        }
      }
    }
    if (has_logged_in) {
      HVD_TRY(clusters_.blame_avoided(own.cluster, id));
    }
    HVD_TRY(database_->change("UPDATE job SET nodes = ? WHERE id = ?", {nodes_text(own.nodes), id}));
    return {};
  });
}

Result<void> JobStore::write_end(std::int64_t id, const RecordedEnd& end) {
  const std::int64_t now = now_();
  HVD_TRY(database_->change(
      "UPDATE job SET state = ?, changed_ms = ?, ended_ms = ?, exit_code = ?, status = ?, error_code = ?,"
      " error_message = ?, error_details = ? WHERE id = ?",
      {std::string(state_name(end.state)), now, now, end.exit_code ? sql_number(*end.exit_code) : SqlValue(),
       sql_number(end.status), end.error.code, end.error.message, end.error.details, id}));
  return clusters_.avoided().forget(id);
}

Result<void> JobStore::end(std::int64_t id, const RecordedEnd& end, const std::vector<std::string>& lost) {
  return database_->in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const JobRecord own, job(id));
    for (const std::string& node : lost) {
      HVD_TRY(clusters_.free_one(id, node, leaving_until(own, now_())));
    }
    HVD_TRY(clusters_.free_all(id, 0));
    if (has_ended(own.state)) {
      return {};
    }
    const bool was_stopped = own.state == ExecutionState::kTerminating;
    return write_end(id, was_stopped ? terminated(end.status == 0 ? kStoppedStatus : end.status) : end);
  });
}

Result<StopOutcome> JobStore::request_stop(std::int64_t id) {
  return database_->in_transaction([&]() -> Result<StopOutcome> {
    HVD_TRY_ASSIGN(const JobRecord own, job(id));
    if (has_ended(own.state)) {
      return StopOutcome::kHadEnded;
    }
    if (own.state == ExecutionState::kQueued) {
      HVD_TRY(write_end(id, terminated(kStoppedStatus)));
      return StopOutcome::kEnded;
    }
    if (own.state == ExecutionState::kRunning) {
      HVD_TRY(database_->change("UPDATE job SET state = 'terminating', changed_ms = ? WHERE id = ?", {now_(), id}));
    }
    return StopOutcome::kTerminating;
  });
}

Result<void> JobStore::bury(std::int64_t id, const std::string& boot) {
  return database_->in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const JobRecord own, job(id));
    if (own.state != ExecutionState::kRunning && own.state != ExecutionState::kTerminating) {
      return {};
    }
    const bool has_rebooted = own.boot != boot;
    const bool leaves_none = own.phase <= Phase::kClaimed || (has_rebooted && own.is_local);
    HVD_TRY(clusters_.free_all(id, leaves_none ? 0 : leaving_until(own, now_())));
    if (own.state == ExecutionState::kTerminating) {
      return write_end(id, terminated(kStoppedStatus));
    }
    const std::string who = has_rebooted ? "The machine restarted" : "The supervisor of the job was killed";
    if (own.phase == Phase::kStarted) {
      return write_end(id, {ExecutionState::kFailed,
                            std::nullopt,
                            exit_code::kSupervisorLost,
                            {kLostError, who + " while its ranks ran", ""}});
    }
    if (own.attempts >= kMostAttempts) {
      return write_end(
          id,
          {ExecutionState::kFailed,
           std::nullopt,
           exit_code::kSupervisorLost,
           {kLostError, who + " each of " + std::to_string(own.attempts) + " times before a rank was started", ""}});
    }
    return queue_again(*database_, id, now_());
  });
}

Result<PutBack> JobStore::put_back(std::int64_t id, const Unreached& unreached) {
  return database_->in_transaction([&]() -> Result<PutBack> {
    HVD_TRY_ASSIGN(const JobRecord own, job(id));
    HVD_TRY_ASSIGN(const std::vector<NodeRecord> nodes, clusters_.nodes_of(own.cluster));
    HVD_TRY_ASSIGN(const std::vector<AvoidedNode> avoided, clusters_.avoided().of(id));
    const bool were_reached = std::all_of(unreached.hosts.begin(), unreached.hosts.end(),
                                          [&](const UnreachedHost& h) { return health_of(nodes, h.name).was_reached; });
    const bool may_wait = own.state == ExecutionState::kRunning && own.attempts < kMostAttempts &&
                          !unreached.hosts.empty() && were_reached;
    if (may_wait && is_job_at_fault(avoided, unreached)) {
      return PutBack::kIsWrong;
    }
    if (unreached.has_reached_one) {
      HVD_TRY(clusters_.blame_avoided(own.cluster, id));
    }
    for (const UnreachedHost& host : unreached.hosts) {
      const NodeHealth before = health_of(nodes, host.name);
      if (!unreached.has_reached_one) {
        HVD_TRY(clusters_.avoided().add(id, host, now_()));
      } else if (!places_of({host.name}, nodes).empty()) {
        HVD_TRY(clusters_.set_health(own.cluster, host.name, after_failure(before, host.why, now_())));
      }
    }
    if (may_wait) {
      HVD_TRY(clusters_.free_all(id, 0));
      HVD_TRY(queue_again(*database_, id, now_()));
    }
    return may_wait ? PutBack::kWaits : PutBack::kEnds;
  });
}

}  // namespace hvd::launch
