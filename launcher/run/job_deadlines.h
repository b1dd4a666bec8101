// JobDeadlines tells a running job's state when one of its waits is over, and ends the job at --timeout, when
// it has said where the ranks are.
//
// Thread: loop only.
#pragma once

#include <map>

#include "launcher/run/job_parts.h"
#include "launcher/run/stack_rounds.h"

namespace hvd::launch {

class JobDeadlines {
 public:
  JobDeadlines(const JobParts& job, StackRounds& stacks) : job_(job), stacks_(stacks) {}

  void act(const AwaitCause& action);
  void act(const AwaitEnd& action);
  void act(const AwaitHosts& action);
  // Enough ranks train again, so that no hosts are awaited.
  void on_formed();
  // The ranks are being started: from now on the time of --timeout passes.
  void begin_timeout();
  // It did not pass for so long, while the whole job was suspended.
  void extend_timeout(Duration stopped);
  // The job ends.
  void stop();

 private:
  void arm_timeout();

  const JobParts& job_;
  StackRounds& stacks_;
  TimerId timeout_timer_ = 0;
  TimePoint timeout_due_;
  TimerId cause_timer_ = 0;
  TimerId hosts_timer_ = 0;            // limits the wait for hosts while too few ranks are left
  std::map<int, TimerId> end_timers_;  // by rank
};

}  // namespace hvd::launch
