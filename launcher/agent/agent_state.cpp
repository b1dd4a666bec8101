#include "launcher/agent/agent_state.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace hvd::launch {
namespace {

namespace act = agent_action;

// What the ranks left behind has at least so long between SIGTERM and SIGKILL (resource trackers end by themselves in
// milliseconds).
constexpr Duration kSweepGrace = std::chrono::seconds(1);
constexpr auto kSweepRetry = std::chrono::milliseconds(50);
// A process in an uninterruptible call cannot be killed. After this time it is named and left.
constexpr auto kSweepKillLimit = std::chrono::seconds(9);

void append(std::vector<AgentAction>& actions, std::vector<AgentAction> more) {
  std::move(more.begin(), more.end(), std::back_inserter(actions));
}

}  // namespace

std::vector<AgentAction> AgentState::on(const AgentEvent& event) {
  return std::visit([this](const auto& e) { return handle(e); }, event);
}

AgentState::Actions AgentState::handle(const agent_event::StartAsked& event) {
  if (has_started_ || is_stopping_) {
    return {};  // a stop may overtake the decision to start
  }
  has_started_ = true;
  may_restart_ = event.may_restart;
  return {act::BeginRanks{}};
}

AgentState::Actions AgentState::handle(const agent_event::StopAsked& event) {
  is_stopping_ = true;
  const bool is_last = event.signo == SIGKILL;
  Actions actions{act::ForgetRestarts{},
                  act::StopRanks{event.signo, is_last ? std::vector<std::int32_t>() : event.spared, event.grace}};
  append(actions, handle(agent_event::ContinueAsked{}));  // one that is stopped would not see the signal
  if (is_last) {
    actions.emplace_back(act::Forget{AgentAlarm::kLadder});
    if (phase_ == Phase::kSweeping) {
      actions.emplace_back(act::LookForLeft{});  // what is left has had its time, too
    }
  } else {
    actions.emplace_back(act::Await{AgentAlarm::kLadder, event.grace});
  }
  append(actions, sweep_if_ended());
  return actions;
}

AgentState::Actions AgentState::handle(const agent_event::SuspendAsked&) {
  is_suspended_ = !is_stopping_;
  Actions actions{act::ExpectSilence{true}};
  if (is_suspended_) {
    actions.emplace_back(act::SignalRanks{SIGSTOP});
  }
  actions.emplace_back(act::Say{AgentMessage::kSuspended});
  return actions;
}

AgentState::Actions AgentState::handle(const agent_event::ContinueAsked&) {
  Actions actions{act::ExpectSilence{false}};
  if (std::exchange(is_suspended_, false)) {
    actions.emplace_back(act::SignalRanks{SIGCONT});
  }
  return actions;
}

AgentState::Actions AgentState::handle(const agent_event::RankBegan& event) {
  ranks_[event.rank] = Rank::kRuns;
  return {};
}

AgentState::Actions AgentState::handle(const agent_event::RankExited& event) {
  ranks_[event.rank] = Rank::kExited;
  return sweep_if_ended();
}

AgentState::Actions AgentState::handle(const agent_event::RankFinished& event) {
  ranks_[event.rank] = event.has_failed ? Rank::kFailed : Rank::kEndedWell;
  if (is_swept_ && all_finished()) {
    return finish();
  }
  return sweep_if_ended();
}

AgentState::Actions AgentState::handle(const agent_event::LeftFound& event) {
  if (phase_ != Phase::kSweeping) {
    return {};
  }
  if (event.is_nothing) {
    return end_sweep();
  }
  if (!std::exchange(has_told_left_, true)) {
    return {act::SignalLeft{event.pids, SIGTERM},
            act::Await{AgentAlarm::kSweep, std::max(kSweepGrace, Duration(event.grace_ends - event.at))}};
  }
  killing_since_ = killing_since_.value_or(event.at);
  if (event.at - *killing_since_ > kSweepKillLimit) {
    Actions actions;
    for (const pid_t pid : event.pids) {
      actions.emplace_back(act::Say{AgentMessage::kProblem, "process " + std::to_string(pid) +
                                                                " cannot be killed (is it in a hung system call?)"});
    }
    append(actions, end_sweep());
    return actions;
  }
  return {act::SignalLeft{event.pids, SIGKILL}, act::Await{AgentAlarm::kSweep, kSweepRetry}};
}

AgentState::Actions AgentState::handle(const agent_event::AlarmDue& event) {
  switch (event.alarm) {
    case AgentAlarm::kLadder:
      return handle(agent_event::StopAsked{SIGKILL, Duration::zero()});
    case AgentAlarm::kSweep:
      return phase_ == Phase::kSweeping ? Actions{act::LookForLeft{}} : Actions();
    case AgentAlarm::kLauncher:
      if (is_stopping_ && phase_ != Phase::kDone && phase_ != Phase::kLeft) {
        return {act::Await{AgentAlarm::kLauncher, times_.signal_patience}};  // the launcher's own grace counts
      }
      break;
  }
  return handle(agent_event::LauncherGone{end_asked_.value_or("")});
}

AgentState::Actions AgentState::handle(const agent_event::EndAsked& event) {
  if (end_asked_ || is_abandoned_) {
    return {};
  }
  end_asked_ = event.why;
  // Say it before the ends of the ranks come: they die of it, and must not be taken for the cause.
  Actions actions{act::Say{AgentMessage::kEnding, event.why}};
  if (times_.signal_patience > Duration::zero()) {
    actions.emplace_back(act::Await{AgentAlarm::kLauncher, times_.signal_patience});
  } else {
    append(actions, handle(agent_event::LauncherGone{event.why}));
  }
  return actions;
}

AgentState::Actions AgentState::handle(const agent_event::LeaveAsked& event) {
  if (!may_restart_) {
    return handle(agent_event::EndAsked{event.why});  // nothing runs here yet, or the others cannot do without it
  }
  if (!leave_asked_) {
    leave_asked_ = event.at;
    return {act::Say{AgentMessage::kLeaving, event.why}};
  }
  return event.at - *leave_asked_ < kSameSignal ? Actions() : handle(agent_event::EndAsked{event.why});
}

AgentState::Actions AgentState::handle(const agent_event::LauncherGone& event) {
  if (std::exchange(is_abandoned_, true)) {
    return {};
  }
  Actions actions{act::LetGo{}};
  if (phase_ == Phase::kDone) {
    phase_ = Phase::kLeft;
    actions.emplace_back(act::Leave{});
    return actions;
  }
  actions.emplace_back(act::TellRanks{event.why});
  append(actions, handle(agent_event::StopAsked{SIGTERM, times_.lost_grace}));
  return actions;
}

bool AgentState::all_ended() const {
  const bool may_restart = may_restart_ && !is_stopping_;
  return std::all_of(ranks_.begin(), ranks_.end(), [may_restart](const auto& rank) {
    return rank.second == Rank::kEndedWell || (rank.second != Rank::kRuns && !may_restart);
  });
}

bool AgentState::all_finished() const {
  return std::none_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.second == Rank::kExited; });
}

AgentState::Actions AgentState::sweep_if_ended() {
  if (phase_ != Phase::kServing || !(has_started_ || is_stopping_) || !all_ended()) {
    return {};
  }
  phase_ = Phase::kSweeping;
  return {act::Forget{AgentAlarm::kLadder}, act::LookForLeft{}};
}

// Nobody is left who could write to a rank's pipes, but what stands in them may still wait for its reader.
AgentState::Actions AgentState::end_sweep() {
  const bool is_first = !std::exchange(is_swept_, true);
  if (all_finished()) {
    return finish();
  }
  return is_first ? Actions{act::Forget{AgentAlarm::kSweep}, act::EndDrains{}} : Actions();
}

AgentState::Actions AgentState::finish() {
  phase_ = Phase::kDone;
  Actions actions{act::Forget{AgentAlarm::kSweep}, act::Say{AgentMessage::kDone}};
  if (is_abandoned_) {
    phase_ = Phase::kLeft;
    actions.emplace_back(act::Leave{});
  }
  return actions;
}

}  // namespace hvd::launch
