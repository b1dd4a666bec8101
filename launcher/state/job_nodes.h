// JobNodes follows the nodes of a job: when all are reached its ranks are started, and what was on a node that is lost
// may be done without. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/state/elastic_changes.h"
#include "launcher/state/job_actions.h"
#include "launcher/state/job_end.h"
#include "launcher/state/job_events.h"
#include "launcher/state/running_job.h"

namespace hvd::launch {

class JobNodes {
 public:
  JobNodes(RunningJob& job, JobEnd& end, ElasticChanges& changes) : job_(job), end_(end), changes_(changes) {}

  JobActions handle(const NodeReady& event);
  JobActions handle(const NodeLost& event);
  JobActions handle(const NodeEnding& event);
  JobActions handle(const NodeDone& event);
  JobActions handle(const StartTimedOut& event);

  // Names the nodes that have not answered yet, for messages.
  [[nodiscard]] std::vector<std::string> silent_hosts() const;

 private:
  JobActions start_if_open();

  RunningJob& job_;
  JobEnd& end_;
  ElasticChanges& changes_;
  std::vector<std::pair<int, Error>> unopened_;  // nodes that could not be reached, in order of arrival
  bool has_reached_one_ = false;                 // other than this machine
};

}  // namespace hvd::launch
