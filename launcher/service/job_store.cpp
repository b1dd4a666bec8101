#include "launcher/service/job_store.h"

#include <unistd.h>

#include <algorithm>

#include "launcher/job/host_list.h"
#include "launcher/service/engine_jobs.h"
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

// This table holds what jobs have found out about nodes. Older programs, which know schema 2, leave it alone.
constexpr const char* kHealthTable =
    "CREATE TABLE IF NOT EXISTS node_health(cluster TEXT NOT NULL REFERENCES cluster(name) ON DELETE CASCADE,"
    " name TEXT NOT NULL, was_reached INTEGER NOT NULL, failures INTEGER NOT NULL, unusable_until_ms INTEGER NOT NULL,"
    " why TEXT NOT NULL, PRIMARY KEY(cluster, name));";

ClusterNodeState state_of_node(const NodeRecord& node, bool is_started, std::int64_t now_ms) {
  if (node.job != 0) {
    return is_started ? ClusterNodeState::kRunning : ClusterNodeState::kPreparing;
  }
  if (is_leaving(node.leaving_until_ms, now_ms)) {
    return ClusterNodeState::kLeaving;
  }
  return node.is_in_service ? ClusterNodeState::kIdle : ClusterNodeState::kUnusable;
}

Error no_cluster(const std::string& name, const std::vector<std::string>& all) {
  if (all.empty()) {
    return Error(Code::kNotFound, (name.empty() ? std::string() : "there is no cluster '" + shown_text(name) + "': ") +
                                      "there is no cluster yet; as in: hvdrun cluster add NAME -H node1,node2");
  }
  std::string names;
  for (const std::string& other : all) {
    add_to_list(names, other);
  }
  return Error(Code::kNotFound, name.empty() ? "there are several clusters (" + names + "); say which with -c NAME"
                                             : "there is no cluster '" + shown_text(name) + "'; there is " + names);
}

}  // namespace

const char* node_state_name(ClusterNodeState state) {
  constexpr const char* kNames[] = {"idle", "preparing", "running", "leaving", "unusable"};
  return kNames[static_cast<std::size_t>(state)];
}

Result<JobStore> JobStore::open(const StateDir& dir, Now now, Duration patience) {
  // Only one process at a time creates the file and its tables.
  std::optional<Fd> alone;
  if (::access(dir.database().c_str(), F_OK) != 0) {
    HVD_TRY_ASSIGN(alone, wait_for_lock(dir.locks() + "/opening", Deadline::after(kOpenTime)));
  }
  HVD_TRY_ASSIGN(Database database, Database::open(dir.database()));
  JobStore store(std::move(database), std::move(now));
  HVD_TRY(store.prepare(dir));
  store.database_.set_patience(patience);
  return store;
}

Result<void> JobStore::prepare(const StateDir& dir) {
  const auto version_of = [this]() -> Result<std::int64_t> {
    HVD_TRY_ASSIGN(const auto rows, database_.query("PRAGMA user_version"));
    return rows.empty() ? 0 : rows.front().integer(0);
  };
  HVD_TRY_ASSIGN(std::int64_t version, version_of());
  if (version < kSchemaVersion) {
    HVD_TRY(database_.in_transaction([this, &version_of]() -> Result<void> {
      HVD_TRY_ASSIGN(const std::int64_t now_there, version_of());
      return now_there == 0 ? database_.run(kTables) : now_there == 1 ? database_.run(kFromSchema1) : Result<void>();
    }));
    HVD_TRY_ASSIGN(version, version_of());
  }
  // Older programs, which know schema 1, leave this table alone.
  HVD_TRY(database_.run(engine_job_table()));
  HVD_TRY(database_.run(kHealthTable));
  if (version != kSchemaVersion) {
    return Error(Code::kInvalid, "the jobs' records (" + dir.database() + ") have schema " + std::to_string(version) +
                                     ", which a newer hvdrun has made; this one knows schema " +
                                     std::to_string(kSchemaVersion) +
                                     ": use the newer one, or set XDG_STATE_HOME to another place");
  }
  return {};
}

Result<void> JobStore::add_cluster(const Cluster& cluster) {
  HVD_TRY(check_cluster_name(cluster.name));
  // Every command reads all records, so one that cannot be read would make them all fail.
  const auto again = parse_cluster(cluster_text(cluster), "the record of cluster " + cluster.name, cluster.name);
  if (!again.ok() || !(again.value().cluster == cluster)) {
    return Error(Code::kInvalid, "the cluster '" + cluster.name + "' cannot be kept as it is" +
                                     (again.ok() ? "" : ": " + again.error().message()) +
                                     "; are all names of hosts plain text?");
  }
  return database_.in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto same, database_.query("SELECT 1 FROM cluster WHERE name = ?", {cluster.name}));
    if (!same.empty()) {
      return Error(Code::kInvalid, "there is a cluster '" + cluster.name +
                                       "' already; remove it first: hvdrun cluster remove " + cluster.name);
    }
    HVD_TRY(database_.change("INSERT INTO cluster(name, text, created_ms) VALUES(?, ?, ?)",
                             {cluster.name, cluster_text(cluster), now_()}));
    std::int64_t place = 0;
    for (const HostSpec& host : cluster.hosts) {
      HVD_TRY_ASSIGN(const auto other, database_.query("SELECT cluster FROM node WHERE name = ?", {host.name}));
      if (!other.empty()) {
        return Error(Code::kInvalid, "the host " + host.name + " is in the cluster '" + other.front().text(0) +
                                         "' already, and would be given to two jobs at once");
      }
      HVD_TRY(database_.change("INSERT INTO node(cluster, place, name) VALUES(?, ?, ?)",
                               {cluster.name, place++, host.name}));
    }
    return {};
  });
}

Result<std::vector<NodeRecord>> JobStore::nodes_of(const std::string& cluster) {
  HVD_TRY_ASSIGN(const auto rows,
                 database_.query("SELECT node.name, drained, node.job, leaving_until_ms, job.phase, was_reached,"
                                 " failures, unusable_until_ms, why FROM node"
                                 " LEFT JOIN job ON job.id = node.job"
                                 " LEFT JOIN node_health ON node_health.cluster = node.cluster AND"
                                 " node_health.name = node.name WHERE node.cluster = ? ORDER BY place",
                                 {cluster}));
  std::vector<NodeRecord> nodes;
  for (const SqlRow& row : rows) {
    NodeRecord node;
    node.host.name = row.text(0);
    node.is_drained = row.integer(1) != 0;
    node.job = row.integer(2);
    node.leaving_until_ms = row.integer(3);
    node.health = {row.integer(5) != 0, static_cast<int>(row.integer(6)), row.integer(7), row.text(8)};
    node.is_in_service = !node.is_drained && !is_unusable(node.health, now_());
    node.state = state_of_node(node, row.integer(4) == static_cast<std::int64_t>(Phase::kStarted), now_());
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Result<std::vector<ClusterRecord>> JobStore::clusters() {
  HVD_TRY_ASSIGN(const auto rows, database_.query("SELECT name, text, created_ms FROM cluster ORDER BY name"));
  std::vector<ClusterRecord> all;
  for (const SqlRow& row : rows) {
    ClusterRecord record;
    HVD_TRY_ASSIGN(LoadedCluster loaded,
                   parse_cluster(row.text(1), "the record of cluster " + row.text(0), row.text(0)));
    record.cluster = std::move(loaded.cluster);
    record.created_ms = row.integer(2);
    HVD_TRY_ASSIGN(record.nodes, nodes_of(row.text(0)));
    for (std::size_t i = 0; i < record.nodes.size() && i < record.cluster.hosts.size(); ++i) {
      record.nodes[i].host = record.cluster.hosts[i];
    }
    all.push_back(std::move(record));
  }
  return all;
}

Result<ClusterRecord> JobStore::cluster(const std::string& name) {
  HVD_TRY_ASSIGN(std::vector<ClusterRecord> all, clusters());
  std::vector<std::string> names;
  for (ClusterRecord& record : all) {
    if (record.cluster.name == name || (name.empty() && all.size() == 1)) {
      return std::move(record);
    }
    names.push_back(record.cluster.name);
  }
  return no_cluster(name, names);
}

Result<void> JobStore::remove_cluster(const std::string& name) {
  return database_.in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto jobs, database_.query("SELECT name FROM job WHERE cluster = ? AND state IN ('queued', "
                                                    "'running', 'terminating')",
                                                    {name}));
    if (!jobs.empty()) {
      return Error(Code::kInvalid, "the cluster '" + name + "' has a job that has not ended: " + jobs.front().text(0) +
                                       "; stop it first: hvdrun stop " + jobs.front().text(0));
    }
    HVD_TRY_ASSIGN(const int gone, database_.change("DELETE FROM cluster WHERE name = ?", {name}));
    return gone == 1 ? Result<void>()
                     : Result<void>(Error(Code::kNotFound, "there is no cluster '" + shown_text(name) + "'"));
  });
}

Result<void> JobStore::set_drained(const std::string& cluster, const std::vector<std::string>& nodes, bool drained) {
  return database_.in_transaction([&]() -> Result<void> {
    const auto flag = static_cast<std::int64_t>(drained);
    constexpr const char* kForget = "UPDATE node_health SET failures = 0, unusable_until_ms = 0 WHERE cluster = ?";
    if (nodes.empty()) {
      HVD_TRY(database_.change("UPDATE node SET drained = ? WHERE cluster = ?", {flag, cluster}));
      HVD_TRY(drained ? Result<int>(0) : database_.change(kForget, {cluster}));
    }
    for (const std::string& node : nodes) {
      HVD_TRY_ASSIGN(const int done, database_.change("UPDATE node SET drained = ? WHERE cluster = ? AND name = ?",
                                                      {flag, cluster, node}));
      if (done == 0) {
        return Error(Code::kNotFound, "the cluster '" + cluster + "' has no node '" + shown_text(node) + "'");
      }
      HVD_TRY(drained ? Result<int>(0) : database_.change(std::string(kForget) + " AND name = ?", {cluster, node}));
    }
    return {};
  });
}

}  // namespace hvd::launch
