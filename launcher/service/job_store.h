// JobStore holds the records of the service (clusters, nodes and jobs) and all operations that change them. Each change
// is one transaction together with the check that it depends on, so that of several processes that want the same thing
// one gets it.
//
// Thread: one at a time; processes: any number.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/service/cluster.h"
#include "launcher/service/database.h"
#include "launcher/service/job_record.h"
#include "launcher/service/node_health.h"
#include "launcher/service/scheduler.h"
#include "launcher/service/state_dir.h"

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

// Claimant is a supervisor that asks for its job's nodes.
struct Claimant {
  int pid = 0;
  std::int64_t pid_start = 0;
  std::string boot;
};

enum class StopOutcome : std::uint8_t { kHadEnded, kEnded, kTerminating };

class JobStore {
 public:
  using Now = std::function<std::int64_t()>;  // milliseconds since 1970

  // `patience` is how long an operation waits for other processes, once the store is open.
  static Result<JobStore> open(const StateDir& dir, Now now, Duration patience = Database::kPatience);

  // Adds a cluster. A host may be in one cluster only; otherwise it would be given to two jobs.
  Result<void> add_cluster(const Cluster& cluster);
  Result<std::vector<ClusterRecord>> clusters();
  // Returns a cluster; an empty name means the only one that exists.
  Result<ClusterRecord> cluster(const std::string& name);
  // Fails while jobs wait for the cluster or run on it.
  Result<void> remove_cluster(const std::string& name);
  // Drains these nodes of the cluster (empty: all), so that no further job gets them, or resumes them, also those that
  // could not be reached.
  Result<void> set_drained(const std::string& cluster, const std::vector<std::string>& nodes, bool drained);

  // Sets id and times. A name that is taken is refused; where `is_named` is false a number is added to it instead.
  Result<JobRecord> add_job(JobRecord job, bool is_named);
  // Finds a job by its name, else by its number.
  Result<JobRecord> job(const std::string& reference);
  Result<JobRecord> job(std::int64_t id);
  // Returns the jobs that have not ended, by number.
  Result<std::vector<JobRecord>> active_jobs();
  // Returns the newest `count` of the jobs that have ended; 0: all.
  Result<std::vector<JobRecord>> ended_jobs(std::int64_t count);
  Result<std::int64_t> count_ended();
  // True when a job that has not ended has this uuid.
  Result<bool> is_active(const std::string& uuid);
  Result<void> remove_job(std::int64_t id);

  // True when the job would get its nodes now, or a running elastic one further nodes, unless another process is
  // faster.
  Result<bool> is_turn(std::int64_t id);
  // Gives the job its nodes and makes it running, if it is its turn. nullopt: it is not.
  Result<std::optional<JobRecord>> claim(std::int64_t id, const Claimant& claimant);
  // Gives a running elastic job the nodes that it may have besides its own.
  Result<void> grow(std::int64_t id);
  Result<std::vector<NodeRecord>> nodes_of_job(std::int64_t id);
  // Takes a drained node from a job that does not use it any more. `is_lost`: its agent may still be ending there.
  Result<void> give_back(std::int64_t id, const std::string& node, bool is_lost);
  // Returns when the next node of the cluster that is leaving, or could not be reached, becomes idle; 0: there is none.
  Result<std::int64_t> next_idle_ms(const std::string& cluster);

  // Called by the supervisor of a job that has its nodes.
  Result<void> set_phase(std::int64_t id, Phase phase);
  Result<void> set_leaving_time(std::int64_t id, std::int64_t leave_ms, bool is_local);
  Result<void> set_output(std::int64_t id, const std::string& directory, const std::vector<std::string>& rank_files);
  // Records the addresses of nodes that the job has, and so has reached.
  Result<void> set_addresses(std::int64_t id, const std::vector<JobNode>& known);
  // Called when the job could not reach these nodes, each for its reason, before any rank was started: no job gets them
  // for a while. Returns whether the job waits again, with its other nodes idle. It does not if no job has ever reached
  // one of them, after too many attempts, or if a user has stopped it; the caller ends it then.
  Result<bool> put_back(std::int64_t id, const std::vector<std::pair<std::string, std::string>>& unreached);
  // Ends the job and makes its nodes idle again. A terminating job has failed because it was stopped, whatever `end`
  // says.
  Result<void> end(std::int64_t id, const RecordedEnd& end);

  // Ends a waiting job at once. For a running job the caller must notify its supervisor.
  Result<StopOutcome> request_stop(std::int64_t id);
  // Handles the death of a job's supervisor, once for each death. The job waits again or has failed; its nodes are
  // leaving for as long as its agents need. Does nothing when the job is no longer running.
  Result<void> bury(std::int64_t id, const std::string& boot);

 private:
  JobStore(Database database, Now now) : database_(std::move(database)), now_(std::move(now)) {}
  Result<void> prepare(const StateDir& dir);
  Result<std::vector<JobRecord>> select_jobs(const std::string& rest, const std::vector<SqlValue>& arguments);
  // Returns the names of the nodes that the job would get; empty: it is not its turn, or it may not grow.
  Result<std::vector<std::string>> plan_for(const JobRecord& job);
  // Gives the job the nodes that it would get, in a transaction of the caller. True: there were some.
  Result<bool> take_nodes(JobRecord& own);
  Result<std::vector<NodeRecord>> nodes_of(const std::string& cluster);
  Result<void> free_nodes(std::int64_t id, std::int64_t leaving_until_ms);
  Result<void> write_end(std::int64_t id, const RecordedEnd& end);

  Database database_;
  Now now_;
};

}  // namespace hvd::launch
