// Store: the records of the service, of clusters, nodes and jobs, and all that changes them. Each change is one
// transaction with the check that it depends on, so that of several processes that want the same one gets it.
//
// Thread: one at a time; processes: any number.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/service/cluster.h"
#include "launcher/service/database.h"
#include "launcher/service/job_record.h"
#include "launcher/service/scheduler.h"
#include "launcher/service/state_dir.h"

namespace hvd::launch {

enum class NodeState : std::uint8_t { kIdle, kPreparing, kRunning, kLeaving, kUnusable };
const char* node_state_name(NodeState state);

struct NodeRecord {
  HostSpec host;
  bool is_drained = false;
  std::int64_t job = 0;               // that has it; 0: none
  std::int64_t leaving_until_ms = 0;  // what a dead supervisor left there may need that long to notice
  NodeState state = NodeState::kIdle;
};

struct ClusterRecord {
  Cluster cluster;
  std::int64_t created_ms = 0;
  std::vector<NodeRecord> nodes;  // in the order of its file
};

// A supervisor that asks.
struct Claimant {
  int pid = 0;
  std::int64_t pid_start = 0;
  std::string boot;
};

enum class StopOutcome : std::uint8_t { kHadEnded, kEnded, kTerminating };

class Store {
 public:
  using Now = std::function<std::int64_t()>;  // milliseconds since 1970

  static Result<Store> open(const StateDir& dir, Now now);

  // A host is in one cluster at most: else it would be given twice.
  Result<void> add_cluster(const Cluster& cluster);
  Result<std::vector<ClusterRecord>> clusters();
  // Empty: the only one that there is.
  Result<ClusterRecord> cluster(const std::string& name);
  // Not while jobs wait for it or run on it.
  Result<void> remove_cluster(const std::string& name);
  // These of its nodes (empty: all) are given to no further job, or are again.
  Result<void> set_drained(const std::string& cluster, const std::vector<std::string>& nodes, bool drained);

  // Sets id and times. A name that is taken is refused; where `is_named` is false a number is added to it instead.
  Result<JobRecord> add_job(JobRecord job, bool is_named);
  // By its name, else by its number.
  Result<JobRecord> job(const std::string& reference);
  Result<JobRecord> job(std::int64_t id);
  // Those that have not ended, by their numbers.
  Result<std::vector<JobRecord>> active_jobs();
  // The newest `count` of those that have; 0: all.
  Result<std::vector<JobRecord>> ended_jobs(std::int64_t count);
  Result<std::int64_t> count_ended();
  // One of those that have not ended has this uuid.
  Result<bool> is_active(const std::string& uuid);
  Result<void> remove_job(std::int64_t id);

  // It would get its nodes now, unless another is faster.
  Result<bool> is_turn(std::int64_t id);
  // Gives the job its nodes and makes it running, if it is its turn. nullopt: it is not.
  Result<std::optional<JobRecord>> claim(std::int64_t id, const Claimant& claimant);
  // When a node that is leaving will be idle, of a job's cluster; 0: none is leaving.
  Result<std::int64_t> next_idle_ms(const std::string& cluster);

  // By the supervisor of a job that has its nodes.
  Result<void> set_phase(std::int64_t id, Phase phase);
  Result<void> set_leaving_time(std::int64_t id, std::int64_t leave_ms, bool is_local);
  Result<void> set_output(std::int64_t id, const std::string& directory, const std::vector<std::string>& rank_files);
  Result<void> set_nodes(std::int64_t id, const std::vector<JobNode>& nodes);
  // Its nodes are idle again. One that is terminating has failed for that, whatever `end` says.
  Result<void> end(std::int64_t id, const JobEnd& end);

  // A job that waits has ended by it; of one that runs the supervisor is to be told.
  Result<StopOutcome> request_stop(std::int64_t id);
  // Of a job whose supervisor is dead, once for each death: it waits again, or has failed; its nodes are leaving for as
  // long as they need. Nothing, when it does not run any more.
  Result<void> bury(std::int64_t id, const std::string& boot);

 private:
  Store(Database database, Now now) : database_(std::move(database)), now_(std::move(now)) {}
  Result<void> prepare(const StateDir& dir);
  Result<std::vector<JobRecord>> select_jobs(const std::string& rest, const std::vector<SqlValue>& arguments);
  // The names of the nodes that a waiting job would get; empty: it is not its turn.
  Result<std::vector<std::string>> plan_for(const JobRecord& job);
  Result<std::vector<NodeRecord>> nodes_of(const std::string& cluster);
  Result<void> free_nodes(std::int64_t id, std::int64_t leaving_until_ms);
  Result<void> write_end(std::int64_t id, const JobEnd& end);
  Result<bool> is_name_taken(const std::string& name);

  Database database_;
  Now now_;
};

}  // namespace hvd::launch
