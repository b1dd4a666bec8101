// Scheduler decides which of the waiting jobs of a cluster start now, and on which of its nodes. Pure: the same records
// give the same answer in every process that asks.
//
// Jobs are ordered by priority, then by their submission. A job gets all its nodes at once. A later job never overtakes
// one that only waits for nodes to become idle; otherwise a job that needs many nodes could wait for ever. A job that
// needs more nodes than the cluster has in service for it is passed over.
//
// What is idle then, and what nobody waits for, is given to elastic jobs, to those that start and those that run: they
// get more nodes up to their most, in the same order. While a job waits for nodes to become idle no other one grows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launch {

struct WaitingJob {
  std::int64_t id = 0;  // increases in the order of submission
  int node_count = 1;   // with which it starts
  int priority = 0;
  int most = 0;                // of an elastic job
  std::vector<int> avoided{};  // indexes of nodes that it could not reach, and does not get for a while
};

struct GrowingJob {
  std::int64_t id = 0;
  int priority = 0;
  int room = 0;  // how many nodes more it may have
  std::vector<int> avoided{};
};

struct ScheduledNode {
  bool is_idle = false;
  bool is_in_service = true;  // false: it is given to no job (drained)
};

struct Start {
  std::int64_t id = 0;
  std::vector<int> nodes;  // those that it gets now; indexes in the cluster, ascending

  friend bool operator==(const Start&, const Start&) = default;
};

// `running`: the elastic jobs that run; one that gets nodes has a Start too.
std::vector<Start> plan_starts(std::vector<WaitingJob> jobs, const std::vector<ScheduledNode>& nodes,
                               std::vector<GrowingJob> running = {});

// Returns -1000, 0, 1000 for "low", "normal", "high" (2018-05-01); or the number itself (2017).
int priority_of(const std::string& word);

}  // namespace hvd::launch
