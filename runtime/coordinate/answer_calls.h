// AnswerCalls keeps, on the coordinator, who waits in a round between nodes and calls for the answers of the others
// (link/host_rounds.h). Such an operation is not known to the negotiator, so a rank that is stopped, and never answers,
// would be noticed by nobody else.
//
// A leader that waits calls again every 100 ms. All leaders that have answered with a post wait, and so call: a leader
// that does not is the one that is waited for. Thread: engine only, on the coordinator.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/controller/message.h"
#include "runtime/core/rank_map.h"
#include "runtime/observe/stall_watch.h"

namespace hvd {

class Coordinator;

class AnswerCalls {
 public:
  explicit AnswerCalls(const RankMap& map) : map_(map) {}

  // The rank calls. True: pass the call on to the leaders. All who wait call, so most calls are repetitions.
  [[nodiscard]] bool note(int rank, const AnswerCall& call, TimePoint now);
  // True if some rank waits. It may be for an answer that is on its way.
  [[nodiscard]] bool has_any(TimePoint now);
  // Adds the operations of those who wait to what is incomplete, or, where other ranks have asked for the same one the
  // ordinary way, leaves the ranks that wait out of its missing ones.
  void add_to(std::vector<Incomplete>& incomplete, const Coordinator& coordinator, TimePoint now);
  // The leaders among these ranks of the job, which are ascending: the first rank of each node.
  [[nodiscard]] std::vector<int> leaders_among(const std::vector<int>& ranks) const;

 private:
  struct Called {
    std::string what;
    TimePoint passed_on{};
    std::map<int, TimePoint> last_by_rank{};
  };
  void drop_old(TimePoint now);
  [[nodiscard]] int node_of(int rank) const { return map_.node_of_rank[static_cast<std::size_t>(rank)]; }

  const RankMap& map_;
  std::map<std::pair<int, std::uint64_t>, Called> calls_;  // by set and round
};

}  // namespace hvd
