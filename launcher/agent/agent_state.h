// AgentState decides what an agent does next, as a pure function of its events: no I/O, no clock, no process. AgentCore
// feeds it events and carries out its actions.
//
// Phases: serving (ranks may start and run) -> sweeping (they have ended; what they left behind is ended) -> done ->
// left (the launcher is gone, or going, and the agent ends). Beside the phase there is what may be true in several of
// them: the ranks are being stopped, they are suspended, the launcher is gone.
//
// What a rank leaves that has ended by itself has a second to end. When the rank was told to end, what it leaves may be
// the program that does the work, behind a script that has ended at the signal. So it has all of the grace.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/wire/messages.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// AgentAlarm is what an agent waits for with a timer.
enum class AgentAlarm : std::uint8_t {
  kLadder,   // ranks that were told to end have had their time
  kSweep,    // what was left behind is looked at again
  kLauncher  // the launcher has had its time to say what is to be done
};
inline constexpr std::size_t kAgentAlarms = 3;

// Slurm sends a signal to the agent and to its guardian, which passes it on. So what comes within this time is one.
inline constexpr auto kSameSignal = std::chrono::milliseconds(500);

namespace agent_event {

// ---- from the launcher ----
struct StartAsked {
  bool may_restart = false;  // a rank that fails may be started again
};
struct StopAsked {
  int signo = 0;                       // SIGKILL: at once
  Duration grace{};                    // from this signal to SIGKILL
  std::vector<std::int32_t> spared{};  // ranks that get none of its signals but SIGKILL
};
struct SuspendAsked {};
struct ContinueAsked {};
// ---- of the ranks ----
struct RankBegan {
  int rank = 0;
};
struct RankExited {  // it was told to end, and its process has; others may still write to its pipes
  int rank = 0;
};
struct RankFinished {  // its process has ended, and nothing more will come from its pipes
  int rank = 0;
  bool has_failed = false;
};
// The answer to LookForLeft, or a look of AgentCore's own.
struct LeftFound {
  bool is_nothing = true;
  std::vector<pid_t> pids{};  // may be empty although there is something: it is ending
  TimePoint at{};
  TimePoint grace_ends{};  // of the ranks that were told to end; in the past: none was
};
// ---- of the agent itself ----
struct AlarmDue {
  AgentAlarm alarm = AgentAlarm::kLadder;
};
struct EndAsked {  // by a signal, or by whoever has started this agent
  std::string why;
};
// A signal has announced the end of the machine. Once, the agent of an elastic job asks that its ranks leave the others
// in order; a second time they are ended.
struct LeaveAsked {
  std::string why;
  TimePoint at{};
};
struct LauncherGone {
  std::string why;
};

}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::StartAsked, agent_event::StopAsked, agent_event::SuspendAsked, agent_event::ContinueAsked,
                 agent_event::RankBegan, agent_event::RankExited, agent_event::RankFinished, agent_event::LeftFound,
                 agent_event::AlarmDue, agent_event::EndAsked, agent_event::LeaveAsked, agent_event::LauncherGone>;

namespace agent_action {

struct BeginRanks {};
struct ForgetRestarts {};  // ranks that were to be started again are not
struct SignalRanks {       // to the process group of each
  int signo = 0;
};
struct StopRanks {  // each is to end within the grace, but for these
  int signo = 0;
  std::vector<std::int32_t> spared{};
  Duration grace{};
};
struct ExpectSilence {  // the launcher's silence is, or is no longer, what it has announced
  bool is_expected = false;
};
struct Say {  // to the launcher
  AgentMessage type = AgentMessage::kDone;
  std::string body{};
};
struct Await {  // asks for AlarmDue, in place of what was asked for before
  AgentAlarm alarm{};
  Duration delay{};
};
struct Forget {
  AgentAlarm alarm{};
};
struct LookForLeft {};  // asks for LeftFound
struct SignalLeft {     // but for those that have got a signal with a rank, unless it is SIGKILL
  std::vector<pid_t> pids;
  int signo = 0;
};
struct EndDrains {};  // nothing is left that could write to the ranks' pipes
struct LetGo {};      // nobody hears the ranks any more: their pipes are drained, so that they can end
struct TellRanks {
  std::string why;
};
struct Leave {};  // ends the agent

}  // namespace agent_action

using AgentAction =
    std::variant<agent_action::BeginRanks, agent_action::ForgetRestarts, agent_action::SignalRanks,
                 agent_action::StopRanks, agent_action::ExpectSilence, agent_action::Say, agent_action::Await,
                 agent_action::Forget, agent_action::LookForLeft, agent_action::SignalLeft, agent_action::EndDrains,
                 agent_action::LetGo, agent_action::TellRanks, agent_action::Leave>;

class AgentState {
 public:
  struct Times {
    Duration lost_grace{};       // from SIGTERM to SIGKILL, when there is no launcher to ask
    Duration signal_patience{};  // how long the launcher is given after EndAsked; zero: not at all
  };

  explicit AgentState(const Times& times) : times_(times) {}

  // The actions are to be carried out in their order.
  std::vector<AgentAction> on(const AgentEvent& event);

  // False once the ranks were told to end, and before they were told to start.
  [[nodiscard]] bool may_start_again() const { return has_started_ && !is_stopping_; }
  [[nodiscard]] bool is_stopping() const { return is_stopping_; }
  [[nodiscard]] bool is_sweeping() const { return phase_ == Phase::kSweeping; }
  [[nodiscard]] bool is_leaving() const { return phase_ == Phase::kLeft; }
  [[nodiscard]] bool is_abandoned() const { return is_abandoned_; }
  [[nodiscard]] bool runs(int rank) const {
    const auto found = ranks_.find(rank);
    return found != ranks_.end() && found->second == Rank::kRuns;
  }
  // Its RankFinished has not come.
  [[nodiscard]] bool awaits(int rank) const {
    const auto found = ranks_.find(rank);
    return found != ranks_.end() && (found->second == Rank::kRuns || found->second == Rank::kExited);
  }
  // True when there is something for a launcher that comes back.
  [[nodiscard]] bool is_worth_waiting() const { return has_started_ && !is_abandoned_; }

 private:
  enum class Phase : std::uint8_t { kServing, kSweeping, kDone, kLeft };
  enum class Rank : std::uint8_t { kRuns, kExited, kEndedWell, kFailed };
  using Actions = std::vector<AgentAction>;

  Actions handle(const agent_event::StartAsked& event);
  Actions handle(const agent_event::StopAsked& event);
  Actions handle(const agent_event::SuspendAsked& event);
  Actions handle(const agent_event::ContinueAsked& event);
  Actions handle(const agent_event::RankBegan& event);
  Actions handle(const agent_event::RankExited& event);
  Actions handle(const agent_event::RankFinished& event);
  Actions handle(const agent_event::LeftFound& event);
  Actions handle(const agent_event::AlarmDue& event);
  Actions handle(const agent_event::EndAsked& event);
  Actions handle(const agent_event::LeaveAsked& event);
  Actions handle(const agent_event::LauncherGone& event);
  // No rank runs, and none will.
  [[nodiscard]] bool all_ended() const;
  // Returns true when nothing more will come from the pipes of the ranks that have ended.
  [[nodiscard]] bool all_finished() const;
  Actions sweep_if_ended();
  // What the ranks have left is gone, or cannot be ended.
  Actions end_sweep();
  Actions finish();

  const Times times_;
  Phase phase_ = Phase::kServing;
  std::map<int, Rank> ranks_;
  bool has_started_ = false;
  bool may_restart_ = false;
  bool is_stopping_ = false;
  bool is_suspended_ = false;
  bool is_abandoned_ = false;
  std::optional<std::string> end_asked_;    // why, while the launcher has the first word
  std::optional<TimePoint> leave_asked_;    // when it was first
  bool has_told_left_ = false;              // what was left was told to end
  bool is_swept_ = false;                   // nothing of it is left
  std::optional<TimePoint> killing_since_;  // since it was first killed
};

}  // namespace hvd::launch
