#include "runtime/engine/end_of_job.h"

#include <utility>

namespace hvd {
namespace {

// The time that the engine waits, after a connection broke, for a report of the cause. The agent's notice needs a
// process exit, a pidfd and two hops; every rank must have its error within 5 s.
constexpr Duration kSuspicionTime = std::chrono::seconds(1);
// How long a leaving rank waits for the others to run what was decided and to take in the message ...
constexpr Duration kLeaveTime = std::chrono::seconds(5);
// ... and, if the job has failed already, for the others to take in that message. It waits for none if each rank's
// agent has told it.
constexpr Duration kLeaveAfterFailureTime = std::chrono::seconds(1);

Error shut_down_by(int rank) {
  return {Code::kLostPeer, "Horovod has been shut down by rank " + std::to_string(rank)};
}

// The code of what fails when the job is over. A stall is the fault of ranks that did not come, so whom it ends follows
// them. Codes that say what the program asked for, such as kInvalid, would be wrong for operations that had no part in
// it.
Code code_of_end(Code cause) {
  switch (cause) {
    case Code::kLostPeer:
    case Code::kTimeout:
      return Code::kLostPeer;
    case Code::kResource:
    case Code::kProtocol:
      return cause;
    default:
      return Code::kSystem;
  }
}

template <typename... Action>
EndActions actions_of(Action... action) {
  EndActions actions;
  (actions.emplace_back(std::in_place_type<Action>, std::move(action)), ...);
  return actions;
}

}  // namespace

EndOfJob::EndOfJob(int rank, int size) : rank_(rank), has_said_goodbye_(static_cast<std::size_t>(size), false) {}

EndActions EndOfJob::suspect(const Error& why, int by) {
  if (over_ || suspicion_) {
    return {};
  }
  suspicion_ = why;
  suspect_ = by;
  return actions_of(AwaitCause{kSuspicionTime});
}

EndActions EndOfJob::on_cause_due() {
  return suspicion_ ? fail(*suspicion_, suspect_) : EndActions();
}

EndActions EndOfJob::fail(const Error& cause, int by) {
  if (over_) {
    return {};
  }
  over_ = Error(code_of_end(cause.code()), cause.message());
  EndActions actions = actions_of(PassOn{cause.message()});
  // First, since a program may end as soon as an operation is refused.
  if (cause.code() == Code::kLostPeer && !is_leaving_) {
    actions.emplace_back(TellAgent{by, cause.message()});
  }
  actions.emplace_back(CloseJob{false});
  actions.emplace_back(CloseOutput{});
  return actions;
}

EndActions EndOfJob::on_notice(const std::string& cause) {
  is_told_ = true;
  return fail(Error(Code::kLostPeer, cause));
}

EndActions EndOfJob::on_abort(const std::string& cause) {
  return fail(Error(Code::kLostPeer, cause));
}

EndActions EndOfJob::shut_down(int by_rank) {
  if (over_) {
    return {};
  }
  is_orderly_ = true;
  over_ = shut_down_by(by_rank);
  if (is_leaving_) {
    return actions_of(CloseJob{true}, FailPending{});
  }
  return actions_of(TellOnceNoticed{by_rank, over_->message()}, CloseJob{true}, TellIfPending{}, FailPending{});
}

void EndOfJob::on_goodbye(int rank) {
  has_said_goodbye_[static_cast<std::size_t>(rank)] = true;
}

EndActions EndOfJob::on_link_end(int rank, const Error& why) {
  if (over_ || has_said_goodbye_[static_cast<std::size_t>(rank)]) {
    return {};
  }
  return why.code() == Code::kProtocol ? fail(why) : suspect(why, rank);
}

EndActions EndOfJob::leave() {
  if (is_leaving_) {
    return {};
  }
  is_leaving_ = true;
  if (!over_) {
    return actions_of(AwaitOthers{kLeaveTime}, AskToLeave{});
  }
  const Duration after_failure = is_told_ ? Duration::zero() : kLeaveAfterFailureTime;
  return actions_of(AwaitOthers{is_orderly_ ? kLeaveTime : after_failure});
}

EndActions EndOfJob::on_leave_due() {
  is_leave_overdue_ = true;
  return fail(shut_down_by(rank_));
}

Error EndOfJob::error_of(const std::string& name) const {
  if (is_leaving_) {
    return {Code::kCancelled, "hvd_shutdown was called while '" + name + "' was pending"};
  }
  if (is_orderly_) {
    return {Code::kLostPeer, over_->message() + " before all ranks took part in '" + name + "'"};
  }
  return *over_;
}

bool EndOfJob::take_goodbye(bool have_others_ended) {
  if (!is_orderly_ || has_said_own_goodbye_ || (is_coordinator() && !have_others_ended && !is_leave_overdue_)) {
    return false;
  }
  has_said_own_goodbye_ = true;
  return true;
}

bool EndOfJob::is_finished(bool are_links_finished) const {
  return is_leaving_ && over_ && (is_leave_overdue_ || are_links_finished);
}

}  // namespace hvd
