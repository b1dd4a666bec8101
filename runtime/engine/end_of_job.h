// EndOfJob decides how a job ends for one rank, as a pure function of its events: no I/O, no clock. JobEnding feeds it
// events and carries out its actions, in their order.
//
// - In order: a leaving rank sends Leave, and the coordinator answers with Shutdown after all that it has decided.
//   Every rank, the leaving one too, runs what comes before it, so that no collective is left half done. What is still
//   pending then fails with an error that names the leaver. Ranks send Goodbye when they have finished, the coordinator
//   last. So the end of file that follows is not mistaken for a death, and no rank closes a socket that still carries
//   messages.
// - By failure: the first certain cause (a notice, an abort, a malformed message, no memory) ends the job at once and
//   is passed on. A broken connection is only a suspicion. The real cause follows within a moment from a process that
//   knows it, such as the agent, which sees the signal that killed the rank. So the engine waits for that before it
//   reports the connection.
//
// Thread: engine only.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd {

// ---- actions ----
struct AwaitCause {  // asks for on_cause_due() after this time
  Duration limit{};
};
struct AwaitOthers {  // asks for on_leave_due() after this time
  Duration limit{};
};
struct AskToLeave {};  // tells the coordinator that this rank leaves; the coordinator tells all that the job ends
struct PassOn {        // logs the cause, and sends it to the ranks to which this one has a link
  std::string cause;
};
struct CloseJob {           // refuses operations and drops the steps that were decided
  bool is_orderly = false;  // what runs on a device may end; otherwise it is aborted
};
struct TellAgent {  // reports that this rank only follows another failure, to the launcher, which looks for the first
  int by = -1;
  std::string cause;
};
struct TellOnceNoticed {  // the same, when the program learns of the end: an operation is refused from now on, or ...
  int by = -1;
  std::string cause;
};
struct TellIfPending {};  // ... is pending now
struct CloseOutput {};    // nothing is sent any more
struct FailPending {};    // no collective is running, so pending operations fail at once
using EndAction = std::variant<AwaitCause, AwaitOthers, AskToLeave, PassOn, CloseJob, TellAgent, TellOnceNoticed,
                               TellIfPending, CloseOutput, FailPending>;
using EndActions = std::vector<EndAction>;

class EndOfJob {
 public:
  EndOfJob(int rank, int size);

  // ---- events ----
  // Something failed that another failure may have caused. `by` is the rank whose end or fault it is; -1: not known, or
  // this rank's own.
  EndActions suspect(const Error& why, int by = -1);
  EndActions on_cause_due();
  // A certain cause.
  EndActions fail(const Error& cause, int by = -1);
  // The agent says that the job has failed, as each rank's agent does.
  EndActions on_notice(const std::string& cause);
  // A rank has sent the cause for which the job is over.
  EndActions on_abort(const std::string& cause);
  // The place in the order at which the job ends, since this rank has asked for that.
  EndActions shut_down(int by_rank);
  void on_goodbye(int rank);
  EndActions on_link_end(int rank, const Error& why);
  // This rank's program leaves.
  EndActions leave();
  EndActions on_leave_due();

  // ---- state ----
  // Why the job is over for this rank; none while it goes on. kLostPeer: another rank's end, failure or absence,
  // which this one only follows.
  [[nodiscard]] const std::optional<Error>& over() const { return over_; }
  [[nodiscard]] bool is_suspicious() const { return suspicion_.has_value(); }
  [[nodiscard]] bool is_leaving() const { return is_leaving_; }
  // The error of an operation that is pending when the job is over.
  [[nodiscard]] Error error_of(const std::string& name) const;
  // True once: it is time to say goodbye, which ends the links after an orderly end. The coordinator waits until all
  // others have ended, because until then it relays aborts; but it does not leave without a goodbye, or a rank that
  // still runs what was decided would take its end for a death.
  [[nodiscard]] bool take_goodbye(bool have_others_ended);
  // True if this rank has left, and has nothing to wait for.
  [[nodiscard]] bool is_finished(bool are_links_finished) const;

 private:
  [[nodiscard]] bool is_coordinator() const { return rank_ == 0; }

  // constant after construction
  const int rank_;
  // engine only
  std::optional<Error> suspicion_;
  int suspect_ = -1;  // the rank under suspicion, if it is known
  std::optional<Error> over_;
  std::vector<bool> has_said_goodbye_;  // [size]
  bool is_orderly_ = false;             // over_ is an orderly shutdown
  bool is_told_ = false;                // by the agent
  bool is_leaving_ = false;
  bool is_leave_overdue_ = false;
  bool has_said_own_goodbye_ = false;
};

}  // namespace hvd
