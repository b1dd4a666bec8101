// NodeHealth is what jobs have found out about a node of a cluster: whether any of them has reached it, and for how
// long no job gets it because one could not, which has reached others.
//
// A node that cannot be reached is unusable for a minute, and after each further failure for twice as long, up to an
// hour. Then a job gets it again, which is how its return is noticed: nobody else looks.
//
// A job that has reached no node at all may itself be at fault (a wrong key, --rsh or ssh configuration). Then only
// this job avoids the nodes for that time (AvoidedNodes), until it reaches another one, which shows that they are at
// fault.
//
// Thread: one at a time; processes: any number.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/job/unreached.h"
#include "launcher/service/database.h"

namespace hvd::launch {

struct NodeHealth {
  bool was_reached = false;            // by any job, ever
  int failures = 0;                    // in a row
  std::int64_t unusable_until_ms = 0;  // since 1970
  std::string why;                     // it could not be reached the last time

  friend bool operator==(const NodeHealth&, const NodeHealth&) = default;
};

inline constexpr std::int64_t kFirstUnusableMs = 60'000;
inline constexpr std::int64_t kLongestUnusableMs = std::int64_t{3600} * 1000;

// A time that lies further ahead than any failure sets it is of a clock that was set back, and does not count.
inline bool is_unusable(const NodeHealth& health, std::int64_t now_ms) {
  return health.unusable_until_ms > now_ms && health.unusable_until_ms - now_ms <= kLongestUnusableMs;
}
NodeHealth after_failure(NodeHealth health, std::string why, std::int64_t now_ms);
inline NodeHealth after_success() {
  return {true, 0, 0, ""};
}

struct AvoidedNode {
  std::string name;
  NodeHealth health;         // towards this job; `was_reached`: by another job since then
  bool was_refused = false;  // the node was there, and did not let the job in
};

// Returns true if what the job itself brings to reach nodes is wrong: it has reached none of these, where its own ssh
// configuration cannot be read, others have been refused it before, or other jobs have reached them meanwhile. Pure.
bool is_job_at_fault(const std::vector<AvoidedNode>& avoided, const Unreached& unreached);

// AvoidedNodes holds which nodes each waiting job avoids. Its users begin the transactions.
class AvoidedNodes {
 public:
  // Makes the table, if it is not there.
  static const char* table();

  // The database, which has the tables (JobStore::open), must outlive it.
  explicit AvoidedNodes(Database& database) : database_(database) {}

  // Returns those of a job, also those whose time is over.
  Result<std::vector<AvoidedNode>> of(std::int64_t job);
  // Returns the names of those that each job avoids now.
  Result<std::map<std::int64_t, std::vector<std::string>>> now(std::int64_t now_ms);
  // Returns when the job may have the next of them; 0: it avoids none.
  Result<std::int64_t> next_ms(std::int64_t job, std::int64_t now_ms);
  // The job avoids this node for a minute, after the next failure for two, and so on.
  Result<void> add(std::int64_t job, const UnreachedHost& node, std::int64_t now_ms);
  // This job has reached the node.
  Result<void> note_reached(const std::string& node, std::int64_t by);
  Result<void> forget(std::int64_t job);

 private:
  Database& database_;
};

}  // namespace hvd::launch
