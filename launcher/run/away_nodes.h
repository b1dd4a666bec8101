// AwayNodes gives up nodes whose connections have broken, before the time for their return is over, where the job can
// do without them.
//
// Thread: loop only.
#pragma once

#include <map>

#include "launcher/run/job_parts.h"

namespace hvd::launch {

class AwayNodes {
 public:
  explicit AwayNodes(const JobParts& job) : job_(job) {}
  ~AwayNodes() { stop(); }
  AwayNodes(const AwayNodes&) = delete;
  AwayNodes& operator=(const AwayNodes&) = delete;

  void on_away(int node, const Error& why);
  void on_back(int node);
  // The job ends.
  void stop();

 private:
  void give_up_in(Duration delay, int node);
  void give_up(int node);
  // The hosts that are heard, also those that have no ranks yet, are enough for a new start.
  [[nodiscard]] bool can_start_anew() const;

  const JobParts& job_;
  std::map<int, TimerId> timers_;  // by node
};

}  // namespace hvd::launch
