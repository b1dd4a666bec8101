#include "launcher/state/job_end.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/state/exit_codes.h"

namespace hvd::launch {

JobActions JobEnd::handle(const Interrupted& event) {
  ++interrupts_;
  if (interrupts_ > 2) {
    job_.phase = JobPhase::kDone;
    return {Finish{}};
  }
  if (interrupts_ == 2) {
    return {StopNodes{SIGKILL}};
  }
  if (job_.is_awaiting_end) {
    return {StopNodes{event.signo}};  // also to the rank that was spared until now
  }
  Cause cause;
  cause.exit_code = 128 + event.signo;
  cause.kind = Cause::Kind::kInterrupted;
  cause.lines.push_back("hvdrun got " + signal_name(event.signo));
  cause.hint = "once more to kill the ranks at once";
  return stop_for(std::move(cause), event.signo);
}

JobActions JobEnd::handle(const OutputFailed& event) {
  return stop_for(cause_of(event), SIGTERM);
}

JobActions JobEnd::handle(const FilesFailed&) {
  has_kept_all_ = false;
  return {};
}

JobActions JobEnd::handle(const EngineEnded& event) {
  Cause cause;
  if (job_.phase == JobPhase::kOpening) {
    cause.exit_code = exit_code_of_start(event.why);
    cause.lines.push_back("the ranks could not be started: " + event.why.message());
  } else {
    cause.exit_code = exit_code::kNodeLost;
    cause.lines.push_back("while the ranks ran, " + event.why.message());
  }
  return stop_for(std::move(cause), SIGTERM);
}

JobActions JobEnd::handle(const Misplaced& event) {
  Cause cause;
  cause.exit_code = exit_code::kUsage;
  cause.lines.push_back(event.why.message());
  return stop_for(std::move(cause), SIGTERM);
}

JobActions JobEnd::handle(const TimedOut& event) {
  Cause cause;
  cause.exit_code = exit_code::kTimedOut;
  cause.lines.push_back("the job has run for as long as " + event.setting + " allows");
  return stop_for(std::move(cause), SIGTERM);
}

JobActions JobEnd::handle(const StopTimedOut&) {
  std::replace(job_.nodes.begin(), job_.nodes.end(), NodeState::kReady, NodeState::kLost);
  job_.phase = JobPhase::kDone;
  return {Finish{}};
}

void JobEnd::note_late(const JobEvent& event) {
  interrupts_ += std::holds_alternative<Interrupted>(event) ? 1 : 0;
  if (std::holds_alternative<FilesFailed>(event)) {
    has_kept_all_ = false;
  } else if (const auto* failed = std::get_if<OutputFailed>(&event); failed != nullptr && !job_.cause) {
    job_.cause = cause_of(*failed);
  }
}

Cause JobEnd::cause_of(const OutputFailed& event) {
  Cause cause;
  const bool reader_gone = event.why.sys_errno() == EPIPE;
  cause.exit_code = reader_gone ? exit_code::kReaderGone : exit_code::kOutputFailed;
  cause.lines.push_back(event.why.message());
  return cause;
}

JobActions JobEnd::stop_for(Cause cause, int signo) {
  if (job_.cause) {
    return {};
  }
  job_.cause = std::move(cause);
  if (job_.phase == JobPhase::kOpening) {
    job_.phase = JobPhase::kDone;
    return {ReportCause{}, Finish{}};
  }
  job_.phase = JobPhase::kStopping;
  return {ReportCause{}, TellRanks{job_.cause->lines.front()}, StopNodes{signo}};
}

JobActions JobEnd::let_others_go() {
  bool is_any_left = false;
  for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
    const bool is_lost = job_.ranks[rank].state == RankRecord::State::kLost;
    const bool has_ended = is_lost || job_.ranks[rank].state == RankRecord::State::kEnded;
    if (!has_ended && !job_.is_optional(static_cast<int>(rank))) {
      return {};
    }
    // The agent of a rank that was released does not know that it will not be started again.
    is_any_left = is_any_left || is_lost || !has_ended || job_.ranks[rank].is_released;
  }
  if (!is_any_left || is_letting_go_ || job_.phase != JobPhase::kRunning) {
    return {};
  }
  is_letting_go_ = true;
  return {StopNodes{SIGTERM}};
}

JobActions JobEnd::finish_if_over() {
  if (job_.phase == JobPhase::kOpening || job_.phase == JobPhase::kDone) {
    return {};
  }
  // Who was about to join a job that ends is not waited for.
  const auto is_there = [](NodeState node) { return node == NodeState::kReady; };
  if (std::any_of(job_.nodes.begin(), job_.nodes.end(), is_there)) {
    return {};
  }
  job_.phase = JobPhase::kDone;
  return {Finish{}};
}

int JobEnd::exit_code() const {
  if (job_.cause) {
    return job_.cause->exit_code;
  }
  return has_kept_all_ ? 0 : exit_code::kOutputFailed;
}

}  // namespace hvd::launch
