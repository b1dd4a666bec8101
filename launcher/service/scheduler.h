// Scheduler: which of the waiting jobs of a cluster begin now, and on which of its nodes. Pure: the same records give
// the same answer in every process that asks.
//
// Jobs go by priority, and of one priority in the order in which they came. All nodes of a job are given at once. What
// comes later never overtakes a job that only waits for nodes to become idle, else one that needs many would wait for
// ever; but a job for which the cluster has too few nodes in service is passed over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launch {

struct WaitingJob {
  std::int64_t id = 0;  // in the order in which they came
  int node_count = 1;
  int priority = 0;
};

struct ScheduledNode {
  bool is_idle = false;
  bool is_in_service = true;  // false: it is to be given to nobody (drained)
};

struct Start {
  std::int64_t id = 0;
  std::vector<int> nodes;  // by their places, ascending

  friend bool operator==(const Start&, const Start&) = default;
};

std::vector<Start> plan_starts(std::vector<WaitingJob> jobs, const std::vector<ScheduledNode>& nodes);

// "low", "normal", "high" (2018-05-01) as -1000, 0, 1000; or the number itself (2017).
int priority_of(const std::string& word);

}  // namespace hvd::launch
