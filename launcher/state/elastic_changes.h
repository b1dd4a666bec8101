// ElasticChanges decides how a job changes while it runs: which ranks are started again or done without, and who is
// taken in or released. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/state/job_actions.h"
#include "launcher/state/job_end.h"
#include "launcher/state/job_events.h"
#include "launcher/state/running_job.h"

namespace hvd::launch {

class ElasticChanges {
 public:
  // `least`: 0 means all ranks.
  ElasticChanges(RunningJob& job, JobEnd& end, int restart_limit, int least)
      : job_(job), end_(end), restart_limit_(restart_limit), least_(least > 0 ? least : job.placement.size) {}

  void let_grow() { may_grow_ = true; }
  void limit_resets(std::optional<int> most) { reset_limit_ = most; }
  void exclude_hosts() { excludes_hosts_ = true; }

  JobActions handle(const MembersChanged& event);
  JobActions handle(const NodeJoining& event);
  JobActions handle(const RanksReleased& event);
  JobActions handle(const HostUnmet& event);
  JobActions handle(const HostsDue& event);

  // The ranks that run or are being started, and were not told to end. None where nobody may join any more.
  [[nodiscard]] std::vector<int> ranks_to_keep() const;
  // True when an elastic job goes on if all but these ranks are lost now.
  [[nodiscard]] bool can_do_with(const std::vector<int>& ranks) const;
  // True when fewer ranks than placed are enough.
  [[nodiscard]] bool has_spare_ranks() const { return least_ < job_.placement.size; }
  // True when the others can go on with the rank after a restart.
  [[nodiscard]] bool is_worth_restarting(int rank) const;
  // True when the others train, or wait for more, without this rank, which has left them before.
  [[nodiscard]] bool go_on_without(int rank) const;
  // Says that the rank was the last to be restarted, if no more restarts are allowed; else nothing.
  [[nodiscard]] std::string limit_text() const;

  // Marks the ranks as lost, and does without them.
  JobActions lose(const std::vector<int>& ranks, const std::string& cause) {
    return lose(ranks, cause, short_for_.has_value());
  }
  // Does without the ranks, if the others are enough, or can wait for more.
  std::optional<JobActions> do_without(const std::vector<int>& ranks, const std::string& cause);
  // Does without the host of a rank that has failed, if that is to be and the others are enough, or can wait for more.
  std::optional<JobActions> leave_host_of(int rank);
  // Starts a rank that has failed again, if that is to be.
  std::optional<JobActions> restart(int rank);

 private:
  // True when ranks of an elastic job may come and go.
  [[nodiscard]] bool may_change() const;
  // True when the ranks that run and have joined are enough for an elastic job.
  [[nodiscard]] bool can_go_on() const;
  // Ends the ranks of this node that are to be released.
  JobActions release(const NodePlan& plan, const RanksReleased& event);
  JobActions lose(const std::vector<int>& ranks, const std::string& cause, bool is_short);

  RunningJob& job_;
  JobEnd& end_;
  const int restart_limit_;
  const int least_;
  bool may_grow_ = false;
  bool excludes_hosts_ = false;
  std::optional<int> reset_limit_;
  int restarts_ = 0;
  int resets_ = 0;
  std::string last_loss_;           // why the members are about to change; empty: nothing was lost
  std::optional<Cause> short_for_;  // why fewer than `least_` are left, while they wait for more
};

}  // namespace hvd::launch
