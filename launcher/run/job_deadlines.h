// JobDeadlines tells a running job's state when one of its waits is over. It says where the ranks are when some of them
// wait for too long, and before it ends the job at --timeout.
//
// Thread: loop only.
#pragma once

#include <map>

#include "launcher/run/job_parts.h"
#include "launcher/run/stack_rounds.h"
#include "launcher/samples/job_watch.h"
#include "launcher/samples/stall_finder.h"

namespace hvd::launch {

class JobDeadlines {
 public:
  JobDeadlines(const JobParts& job, StackRounds& stacks, JobWatch& watch)
      : job_(job), stacks_(stacks), watch_(watch), stalls_(job.spec.stall_after, job.spec.is_silence_a_stall) {}

  void act(const AwaitCause& action);
  void act(const AwaitEnd& action);
  void act(const AwaitHosts& action);
  // Enough ranks train again, so that no hosts are awaited.
  void on_formed();
  // The ranks are being started: from now on the time of --timeout passes, and stalls are looked for.
  void begin_timeout();
  // The ranks go on that were suspended. Until the time of a stall has passed, what they waited may be their
  // suspension.
  void on_continued();
  // The job ends.
  void stop();

 private:
  // Gives up the nodes that are silent while others are heard. False: there is none.
  bool lose_silent_nodes();
  void look_for_stalls();

  const JobParts& job_;
  StackRounds& stacks_;
  JobWatch& watch_;
  StallFinder stalls_;
  TimerId stall_timer_ = 0;
  TimerId timeout_timer_ = 0;
  TimerId cause_timer_ = 0;
  TimerId hosts_timer_ = 0;            // limits the wait for hosts while too few ranks are left
  std::map<int, TimerId> end_timers_;  // by rank
};

}  // namespace hvd::launch
