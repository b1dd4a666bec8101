#include "launcher/state/first_failure.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace hvd::launch {

JobActions FirstFailure::handle(const RankComplained& event) {
  if (event.has_lost_a_peer) {
    job_.order.note_loss(event.rank);
  } else {
    job_.order.note_sign(event.rank, event.at);
  }
  return look_again();
}

JobActions FirstFailure::handle(const CauseDue&) {
  is_awaiting_cause_ = false;
  return look(true);
}

JobActions FirstFailure::look(bool is_late) {
  if (job_.cause) {
    return {};
  }
  const FailureOrder::Finding found = job_.order.first(is_late);
  if (found.rank >= 0) {
    return stop_for_rank(found.rank);
  }
  if (found.must_wait && !is_awaiting_cause_) {
    is_awaiting_cause_ = true;
    return {AwaitCause{}};
  }
  return {};
}

JobActions FirstFailure::settle(const RankExited& event) {
  job_.is_awaiting_end = false;
  const bool was_killed = event.status.kind == ExitStatus::Kind::kSignalled && event.status.value == SIGKILL;
  if (was_killed && !event.status.out_of_memory) {
    job_.cause->lines.front() += "; it did not end within the time of grace, and was killed";
  } else {
    job_.cause->lines.front() = describe_cause(event.rank);
    job_.cause->exit_code = event.status.is_success() ? job_.cause->exit_code : event.status.shell_code();
  }
  return {ReportCause{}};
}

JobActions FirstFailure::stop_for_rank(int rank) {
  const RankRecord& record = job_.rank(rank);
  job_.is_awaiting_end = record.state == RankRecord::State::kRunning;
  Cause cause;
  cause.kind = Cause::Kind::kLoss;
  cause.rank = rank;
  cause.exit_code = job_.is_awaiting_end ? std::max(job_.order.told(rank)->exit_code, 1) : record.status.shell_code();
  cause.lines.push_back(describe_cause(rank));
  if (const std::string leader = describe_leader(rank); !leader.empty()) {
    cause.lines.push_back(leader);
  }
  JobActions actions = end_.stop_for(std::move(cause), SIGTERM);
  was_told_as_failing_ = job_.is_awaiting_end;
  if (job_.is_awaiting_end) {
    // Wait for the rank's end: its exit code becomes the job's, and its exit functions may have much to save. The other
    // ranks get SIGTERM before the news. In the opposite order each would print an exception of its own.
    actions = {ReportFailing{}, StopNodes{SIGTERM, {rank}}, TellRanks{job_.cause->lines.front()}};
  }
  return actions;
}

std::string FirstFailure::describe_cause(int rank) const {
  if (job_.all_fail_again()) {
    return job_.describe(rank) + " (" + job_.rank(rank).failed_with +
           "); every rank has failed twice with the same error, and has committed nothing in between";
  }
  return job_.describe(rank) + changes_.limit_text();
}

std::string FirstFailure::describe_leader(int rank) const {
  const int leader = job_.order.follows(rank) ? job_.order.cause_of(rank) : -1;
  if (leader < 0) {
    return "";
  }
  const RankRecord& record = job_.rank(leader);
  const bool has_ended = record.state == RankRecord::State::kEnded;
  if (!has_ended && !record.last_loss.empty()) {
    return record.last_loss + " before, and was started again";
  }
  return "rank " + std::to_string(leader) + " on " + job_.placement.node_of(leader).host.name +
         (has_ended ? " had left the job before, and " + record.status.text()
                    : ", which it names as the cause, has not failed");
}

}  // namespace hvd::launch
