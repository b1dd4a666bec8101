// JobStore holds the records of the service: its jobs and all operations that change them, and the clusters whose nodes
// the jobs get (ClusterTable). Each change is one transaction together with the check that it depends on,
// so that of several processes that want the same thing one gets it.
//
// Thread: one at a time; processes: any number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/unreached.h"
#include "launcher/service/cluster_table.h"
#include "launcher/service/database.h"
#include "launcher/service/job_record.h"
#include "launcher/service/state_dir.h"

namespace hvd::launch {

// Claimant is a supervisor that asks for its job's nodes.
struct Claimant {
  int pid = 0;
  std::int64_t pid_start = 0;
  std::string boot;
};

enum class StopOutcome : std::uint8_t { kHadEnded, kEnded, kTerminating };

// Says what becomes of a job that could not reach its nodes.
enum class PutBack : std::uint8_t {
  kWaits,    // again, with its nodes idle
  kEnds,     // the caller ends it
  kIsWrong,  // so does it here: what the job itself brings to reach its nodes is wrong
};

class JobStore {
 public:
  using Now = ClusterTable::Now;

  // `patience` is how long an operation waits for other processes, once the store is open.
  static Result<JobStore> open(const StateDir& dir, Now now, Duration patience = Database::kPatience);

  void set_patience(Duration patience) { database_->set_patience(patience); }

  // The clusters and their nodes, in the same database.
  ClusterTable& clusters() { return clusters_; }

  // Sets id and times. A name that is taken is refused; where `is_named` is false a number is added to it instead.
  Result<JobRecord> add_job(JobRecord job, bool is_named);
  // Finds a job by its name, else by its number.
  Result<JobRecord> job(const std::string& reference);
  Result<JobRecord> job(std::int64_t id);
  // Returns the jobs that have not ended, by number.
  Result<std::vector<JobRecord>> active_jobs();
  // Returns the jobs that have begun and not ended, and the waiting one after this job; after the last, the first.
  Result<std::vector<JobRecord>> neighbours_of(std::int64_t id);
  // Returns a number that is another one when a record has changed since.
  Result<std::int64_t> version() { return database_->version(); }
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

  // Called by the supervisor of a job that has its nodes.
  Result<void> set_phase(std::int64_t id, Phase phase);
  Result<void> set_leaving_time(std::int64_t id, std::int64_t leave_ms, bool is_local);
  Result<void> set_output(std::int64_t id, const std::string& directory, const std::vector<std::string>& rank_files);
  // Records the addresses of nodes that the job has, and so has reached. `has_logged_in`: one of them is another
  // machine, so that those which the job could not reach before are at fault.
  Result<void> set_addresses(std::int64_t id, const std::vector<JobNode>& known, bool has_logged_in);
  // Called when the job could not reach these nodes before any rank was started. If it has reached another one, no job
  // gets them for a while; else only this job does not, since it may be at fault itself. It does not wait again if that
  // is certain, if no job has ever reached one of them, after too many attempts, or if a user has stopped it.
  Result<PutBack> put_back(std::int64_t id, const Unreached& unreached);
  // Ends the job and makes its nodes idle again; the `lost` ones only when the agents there have surely ended. A
  // terminating job has failed because it was stopped, whatever `end` says.
  Result<void> end(std::int64_t id, const RecordedEnd& end, const std::vector<std::string>& lost = {});

  // Ends a waiting job at once. For a running job the caller must notify its supervisor.
  Result<StopOutcome> request_stop(std::int64_t id);
  // Handles the death of a job's supervisor, once for each death. The job waits again or has failed; its nodes are
  // leaving for as long as its agents need. Does nothing when the job is no longer running.
  Result<void> bury(std::int64_t id, const std::string& boot);

 private:
  JobStore(Database database, Now now);
  Result<std::vector<JobRecord>> select_jobs(const std::string& rest, const std::vector<SqlValue>& arguments);
  // Returns the names of the nodes that the job would get; empty: it is not its turn, or it may not grow.
  Result<std::vector<std::string>> plan_for(const JobRecord& job);
  // Gives the job the nodes that it would get, in a transaction of the caller. True: there were some.
  Result<bool> take_nodes(JobRecord& own);
  Result<void> write_end(std::int64_t id, const RecordedEnd& end);

  std::unique_ptr<Database> database_;  // keeps its place when the store is moved, since clusters_ refers to it
  Now now_;
  ClusterTable clusters_;
};

}  // namespace hvd::launch
