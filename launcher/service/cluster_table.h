// ClusterTable holds the clusters of the service and their nodes: which job has a node, whether it is drained, and what
// jobs have found out about it. JobStore uses it within its own transactions, so that a job and its nodes change
// together; the operations of users are transactions of their own.
//
// Thread: one at a time; processes: any number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/service/cluster.h"
#include "launcher/service/database.h"
#include "launcher/service/node_health.h"

namespace hvd::launch {

enum class ClusterNodeState : std::uint8_t { kIdle, kPreparing, kRunning, kLeaving, kUnusable };
const char* node_state_name(ClusterNodeState state);

struct NodeRecord {
  HostSpec host;
  bool is_drained = false;
  std::int64_t job = 0;               // the job that has it; 0: none
  std::int64_t leaving_until_ms = 0;  // how long processes left by a dead supervisor may take to notice
  NodeHealth health;
  bool is_in_service = true;  // neither drained, nor unusable because it could not be reached
  ClusterNodeState state = ClusterNodeState::kIdle;
};

// Leaving lasts no longer than this: a clock that was set back must not keep a node from all jobs for years.
inline constexpr std::int64_t kLongestLeavingMs = std::int64_t{24} * 3600 * 1000;
inline bool is_leaving(std::int64_t until_ms, std::int64_t now_ms) {
  return until_ms > now_ms && until_ms - now_ms <= kLongestLeavingMs;
}

struct ClusterRecord {
  Cluster cluster;
  std::int64_t created_ms = 0;
  std::vector<NodeRecord> nodes;  // in the order of the cluster's file
};

class ClusterTable {
 public:
  using Now = std::function<std::int64_t()>;  // milliseconds since 1970

  // The database, which has the tables (JobStore::open), must outlive it.
  ClusterTable(Database& database, Now now) : database_(database), now_(std::move(now)), avoided_(database) {}

  // Adds a cluster. A host may be in one cluster only; otherwise it would be given to two jobs.
  Result<void> add(const Cluster& cluster);
  // Returns all clusters, by name.
  Result<std::vector<ClusterRecord>> all();
  // Returns a cluster; an empty name means the only one that exists.
  Result<ClusterRecord> find(const std::string& name);
  // Fails while jobs wait for the cluster, run on it, or leave a node. Returns the nodes that were drained, which a
  // cluster that is added again does not know.
  Result<std::vector<std::string>> remove(const std::string& name);
  // Drains these nodes of the cluster (empty: all), so that no further job gets them, or resumes them, also those that
  // could not be reached.
  Result<void> set_drained(const std::string& cluster, const std::vector<std::string>& nodes, bool drained);

  // The methods below begin no transaction, since the caller may have begun one.
  AvoidedNodes& avoided() { return avoided_; }
  Result<bool> has(const std::string& name);
  // Returns the nodes of the cluster in their order; of their hosts only the names.
  Result<std::vector<NodeRecord>> nodes_of(const std::string& cluster);
  // Returns when the next node of the cluster that is leaving, or could not be reached, becomes idle for this job; 0:
  // there is none.
  Result<std::int64_t> next_idle_ms(const std::string& cluster, std::int64_t job);
  // Gives the job a node that no job has.
  Result<void> give(const std::string& cluster, const std::string& node, std::int64_t job);
  // Takes all its nodes from a job. They are leaving until then; 0: they are idle.
  Result<void> free_all(std::int64_t job, std::int64_t leaving_until_ms);
  // Takes this node from the job in the same way.
  Result<void> free_one(std::int64_t job, const std::string& node, std::int64_t leaving_until_ms);
  // Takes this node from the job if it is drained. False: it is not drained any more, or the job has ended.
  Result<bool> free_drained(std::int64_t job, const std::string& node, std::int64_t leaving_until_ms);
  // The nodes that this job avoids are at fault, since it has reached others: no job gets them for a while.
  Result<void> blame_avoided(const std::string& cluster, std::int64_t job);
  Result<void> set_health(const std::string& cluster, const std::string& node, const NodeHealth& health);

 private:
  // Says that these nodes are back, for all jobs.
  Result<void> forget_failures(const std::string& where, const std::vector<SqlValue>& arguments);

  Database& database_;
  Now now_;
  AvoidedNodes avoided_;
};

}  // namespace hvd::launch
