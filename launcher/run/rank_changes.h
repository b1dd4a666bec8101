// RankChanges carries out what changes in a job while it runs: ranks that are restarted, done without, or released.
//
// Thread: loop only.
#pragma once

#include "launcher/run/job_parts.h"
#include "launcher/run/moving_hosts.h"

namespace hvd::launch {

class RankChanges {
 public:
  RankChanges(const JobParts& job, MovingHosts& hosts) : job_(job), hosts_(hosts) {}

  void act(const RestartRank& action);
  void act(const GoOnWithout& action);
  void act(const EndNode& action);
  void act(const EndRank& action);

 private:
  const JobParts& job_;
  MovingHosts& hosts_;
};

}  // namespace hvd::launch
