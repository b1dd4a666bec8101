#include "launcher/service/cluster_table.h"

#include <algorithm>

#include "launcher/job/text_file.h"
#include "launcher/service/job_record.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

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

// Added again, the cluster would give the node to a job at once.
Error still_leaving(const std::string& cluster, const NodeRecord& node, std::int64_t now_ms) {
  constexpr std::int64_t kSecond = 1000;
  const auto seconds = static_cast<std::size_t>((node.leaving_until_ms - now_ms + kSecond - 1) / kSecond);
  return Error(Code::kInvalid, "the cluster '" + cluster + "' has a node, " + node.host.name +
                                   ", where processes of a job that was killed may still be ending; remove it in " +
                                   counted(seconds, "second"));
}

}  // namespace

const char* node_state_name(ClusterNodeState state) {
  constexpr const char* kNames[] = {"idle", "preparing", "running", "leaving", "unusable"};
  return kNames[static_cast<std::size_t>(state)];
}

Result<void> ClusterTable::add(const Cluster& cluster) {
  HVD_TRY(check_cluster_name(cluster.name));
  // Every command reads all records, so one that cannot be read would make them all fail.
  const auto again = parse_cluster(cluster_text(cluster), "the record of cluster " + cluster.name, cluster.name);
  if (!again.ok() || !(again.value().cluster == cluster)) {
    return Error(Code::kInvalid, "the cluster '" + cluster.name + "' cannot be kept as it is" +
                                     (again.ok() ? "" : ": " + again.error().message()) +
                                     "; are all names of hosts plain text?");
  }
  return database_.in_transaction([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const bool is_taken, has(cluster.name));
    if (is_taken) {
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

Result<bool> ClusterTable::has(const std::string& name) {
  HVD_TRY_ASSIGN(const auto rows, database_.query("SELECT 1 FROM cluster WHERE name = ?", {name}));
  return !rows.empty();
}

Result<std::vector<ClusterRecord>> ClusterTable::all() {
  HVD_TRY_ASSIGN(const auto rows, database_.query("SELECT name, text, created_ms FROM cluster ORDER BY name"));
  std::vector<ClusterRecord> records;
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
    records.push_back(std::move(record));
  }
  return records;
}

Result<ClusterRecord> ClusterTable::find(const std::string& name) {
  HVD_TRY_ASSIGN(std::vector<ClusterRecord> records, all());
  std::vector<std::string> names;
  for (ClusterRecord& record : records) {
    if (record.cluster.name == name || (name.empty() && records.size() == 1)) {
      return std::move(record);
    }
    names.push_back(record.cluster.name);
  }
  return no_cluster(name, names);
}

Result<std::vector<std::string>> ClusterTable::remove(const std::string& name) {
  return database_.in_transaction([&]() -> Result<std::vector<std::string>> {
    HVD_TRY_ASSIGN(const auto jobs, database_.query("SELECT name FROM job WHERE cluster = ? AND state IN ('queued', "
                                                    "'running', 'terminating')",
                                                    {name}));
    if (!jobs.empty()) {
      return Error(Code::kInvalid, "the cluster '" + name + "' has a job that has not ended: " + jobs.front().text(0) +
                                       "; stop it first: hvdrun stop " + jobs.front().text(0));
    }
    HVD_TRY_ASSIGN(const std::vector<NodeRecord> nodes, nodes_of(name));
    std::vector<std::string> drained;
    for (const NodeRecord& node : nodes) {
      // Nothing can run on a host that no job has ever reached, such as one whose name is wrong.
      if (node.health.was_reached && is_leaving(node.leaving_until_ms, now_())) {
        return still_leaving(name, node, now_());
      }
      if (node.is_drained) {
        drained.push_back(node.host.name);
      }
    }
    HVD_TRY_ASSIGN(const int gone, database_.change("DELETE FROM cluster WHERE name = ?", {name}));
    if (gone != 1) {
      return Error(Code::kNotFound, "there is no cluster '" + shown_text(name) + "'");
    }
    return drained;
  });
}

Result<void> ClusterTable::set_drained(const std::string& cluster, const std::vector<std::string>& nodes,
                                       bool drained) {
  return database_.in_transaction([&]() -> Result<void> {
    const auto flag = static_cast<std::int64_t>(drained);
    if (nodes.empty()) {
      HVD_TRY(database_.change("UPDATE node SET drained = ? WHERE cluster = ?", {flag, cluster}));
      HVD_TRY(drained ? Result<void>() : forget_failures("cluster = ?", {cluster}));
    }
    for (const std::string& node : nodes) {
      HVD_TRY_ASSIGN(const int done, database_.change("UPDATE node SET drained = ? WHERE cluster = ? AND name = ?",
                                                      {flag, cluster, node}));
      if (done == 0) {
        return Error(Code::kNotFound, "the cluster '" + cluster + "' has no node '" + shown_text(node) + "'");
      }
      HVD_TRY(drained ? Result<void>() : forget_failures("cluster = ? AND name = ?", {cluster, node}));
    }
    return {};
  });
}

Result<void> ClusterTable::forget_failures(const std::string& where, const std::vector<SqlValue>& arguments) {
  HVD_TRY(database_.change("UPDATE node_health SET failures = 0, unusable_until_ms = 0 WHERE " + where, arguments));
  HVD_TRY(database_.change("DELETE FROM avoided_node WHERE name IN (SELECT name FROM node WHERE " + where + ")",
                           arguments));
  return {};
}

Result<std::vector<NodeRecord>> ClusterTable::nodes_of(const std::string& cluster) {
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

Result<std::int64_t> ClusterTable::next_idle_ms(const std::string& cluster, std::int64_t job) {
  HVD_TRY_ASSIGN(const auto nodes, nodes_of(cluster));
  const std::int64_t now = now_();
  HVD_TRY_ASSIGN(std::int64_t next, avoided_.next_ms(job, now));
  for (const NodeRecord& node : nodes) {
    const std::int64_t leaving = is_leaving(node.leaving_until_ms, now) ? node.leaving_until_ms : 0;
    const std::int64_t unusable = is_unusable(node.health, now) ? node.health.unusable_until_ms : 0;
    const std::int64_t idle = std::max(leaving, unusable);
    if (node.job == 0 && idle > 0 && (next == 0 || idle < next)) {
      next = idle;
    }
  }
  return next;
}

Result<void> ClusterTable::give(const std::string& cluster, const std::string& node, std::int64_t job) {
  HVD_TRY_ASSIGN(const int taken,
                 database_.change("UPDATE node SET job = ?, leaving_until_ms = 0 WHERE cluster = ? AND "
                                  "name = ? AND job IS NULL",
                                  {job, cluster, node}));
  return taken == 1 ? Result<void>() : Result<void>(Error(Code::kInternal, "the node " + node + " was given twice"));
}

Result<void> ClusterTable::free_all(std::int64_t job, std::int64_t leaving_until_ms) {
  HVD_TRY(database_.change("UPDATE node SET job = NULL, leaving_until_ms = ? WHERE job = ?", {leaving_until_ms, job}));
  return {};
}

Result<void> ClusterTable::free_one(std::int64_t job, const std::string& node, std::int64_t leaving_until_ms) {
  HVD_TRY(database_.change("UPDATE node SET job = NULL, leaving_until_ms = ? WHERE job = ? AND name = ?",
                           {leaving_until_ms, job, node}));
  return {};
}

Result<bool> ClusterTable::free_drained(std::int64_t job, const std::string& node, std::int64_t leaving_until_ms) {
  HVD_TRY_ASSIGN(const int freed,
                 database_.change("UPDATE node SET job = NULL, leaving_until_ms = ? WHERE job = ? AND name = ? AND"
                                  " drained = 1",
                                  {leaving_until_ms, job, node}));
  return freed != 0;
}

Result<void> ClusterTable::blame_avoided(const std::string& cluster, std::int64_t job) {
  HVD_TRY_ASSIGN(const std::vector<AvoidedNode> avoided, avoided_.of(job));
  if (avoided.empty()) {
    return {};
  }
  HVD_TRY_ASSIGN(const std::vector<NodeRecord> nodes, nodes_of(cluster));
  for (const NodeRecord& node : nodes) {
    const auto own = std::find_if(avoided.begin(), avoided.end(),
                                  [&node](const AvoidedNode& other) { return other.name == node.host.name; });
    // What is over, or was so only for this job, says nothing of the node as it is now.
    if (own != avoided.end() && is_unusable(own->health, now_()) && !own->health.was_reached) {
      HVD_TRY(set_health(cluster, own->name, after_failure(node.health, own->health.why, now_())));
    }
  }
  return avoided_.forget(job);
}

Result<void> ClusterTable::set_health(const std::string& cluster, const std::string& node, const NodeHealth& health) {
  HVD_TRY(database_.change(
      "INSERT OR REPLACE INTO node_health(cluster, name, was_reached, failures, unusable_until_ms, why)"
      " VALUES(?, ?, ?, ?, ?, ?)",
      {cluster, node, static_cast<std::int64_t>(health.was_reached), sql_number(health.failures),
       health.unusable_until_ms, health.why}));
  return {};
}

}  // namespace hvd::launch
