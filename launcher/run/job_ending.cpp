#include "launcher/run/job_ending.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// A node counts as lost this long after the grace period, which leaves its agent time to kill what the ranks left
// behind.
constexpr auto kStopSlack = std::chrono::seconds(15);
// So much of the results has to come in that time; a node that sends less could go on for ever.
constexpr std::uint64_t kLeastProgress = 64U << 10U;
// Agents get this long to end after their sessions were closed.
constexpr auto kEndTime = std::chrono::seconds(2);
// An engine gets this long to clean up after its agents, also on other hosts.
constexpr Duration kEngineEndTime = std::chrono::seconds(10);
// When a job is stopped, readers get this long after the grace period to take what the ranks still wait to print.
constexpr auto kReaderTime = std::chrono::milliseconds(500);

}  // namespace

void JobEnding::act(const ReportCause&) {
  const Cause& cause = *job_.state.cause();
  job_.logs.release_held();
  job_.show_status();
  Failure failure;
  failure.cause = cause;
  failure.was_told = job_.state.was_told_as_failing();
  if (cause.rank >= 0) {
    const RankRecord& record = job_.record(cause.rank);
    LastErrors last = job_.logs.last_errors(cause.rank);
    failure.last_errors = std::move(last.lines);
    failure.just_shown = last.just_shown;
    failure.status = record.status;
    failure.detail = record.detail;
    failure.kept_in = job_.logs.kept_in(cause.rank);
    failure.still_running = job_.state.running_besides(cause.rank);
  }
  job_.say(failure);
}

void JobEnding::act(const ReportFailing&) {
  job_.logs.release_held();
  job_.show_status();
  const Cause& cause = *job_.state.cause();
  job_.say(news::Failing{cause, job_.state.running_besides(cause.rank)});
}

void JobEnding::act(const TellRanks& action) {
  job_.broadcast(AgentMessage::kNotice, action.cause);
}

void JobEnding::act(const StopNodes& action) {
  StopMessage stop;
  stop.signal = action.signo;
  stop.spared.assign(action.spared.begin(), action.spared.end());
  stop.grace_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(job_.spec.grace).count());
  are_results_awaited_ = action.signo != SIGKILL;
  job_.generations.stop();
  job_.broadcast(AgentMessage::kStop, stop.encode());
  const Duration grace = action.signo == SIGKILL ? Duration::zero() : job_.spec.grace;
  if (job_.state.cause()) {  // otherwise servers are being ended, and the job has not failed
    output_.stop_waiting_in(action.signo == SIGKILL ? grace : grace + kReaderTime);
  }
  await_end(grace + kStopSlack);
}

void JobEnding::await_end(Duration patience) {
  job_.loop.cancel(stop_timer_);
  stop_timer_ = job_.loop.after(patience, [this] { job_.apply(StopTimedOut{}); });
}

void JobEnding::keep_results(const std::string& folder) {
  ResultKeeper::Sink sink;
  sink.send = [this](int node, AgentMessage type, std::string_view body) { job_.session(node).send(type, body); };
  sink.on_failed = [this](int node, const Error& why) {
    job_.say(Note{LogLevel::kError, node, why.message() + "; its files stay there"});
    // The session is still being read.
    job_.loop.post([this, why] { job_.apply(FilesFailed{why}); });
  };
  sink.on_missed = [this](int node, const Error& why) {
    job_.say(Note{LogLevel::kError, node, why.message() + "; it stays there"});
    job_.loop.post([this, why] { job_.apply(FilesFailed{why}); });
  };
  results_ = std::make_unique<ResultKeeper>(folder, std::move(sink));
}

Result<void> JobEnding::on_result(int node, AgentMessage type, const std::string& body) {
  if (results_ == nullptr) {
    return Error(Code::kProtocol, "its agent sends files that nobody has asked for");
  }
  HVD_TRY(results_->on_message(node, job_.agent(node).host.name, type, body));
  const bool is_progress = results_->progress() - progress_before_ >= kLeastProgress;
  if (stop_timer_ != 0 && !is_finishing_ && are_results_awaited_ && is_progress) {
    progress_before_ = results_->progress();
    await_end(kStopSlack);  // as long as files come, its end is not late
  }
  return {};
}

void JobEnding::act(const Finish&) {
  is_finishing_ = true;
  job_.loop.cancel(stop_timer_);
  if (job_.state.cause() && job_.state.phase() == JobPhase::kDone) {
    job_.log.write(LogLevel::kDebug, "leaving the sessions");
  }
  name_lost_touch();
  // Close the relayed sessions first, because the other ones carry their bytes.
  std::for_each(job_.sessions.rbegin(), job_.sessions.rend(),
                [this](const auto& session) { session->close_input(hosts_.last_words(session->plan().index)); });
  if (!job_.has_started) {
    engine_.end();
  }
  end_timer_ = job_.loop.after(engine_.is_there() ? kEngineEndTime : Duration(kEndTime), [this] { job_.loop.stop(); });
  end_if_closed();
}

void JobEnding::end_if_closed() {
  const bool any_open =
      std::any_of(job_.sessions.begin(), job_.sessions.end(), [](const auto& session) { return session->has_agent(); });
  if (is_finishing_ && !any_open && !engine_.is_running()) {
    job_.loop.cancel(end_timer_);
    job_.loop.stop();
  }
}

void JobEnding::apply_notice(const JobEvent& event) {
  const bool had_cause = job_.state.cause().has_value();
  job_.apply(event);
  was_told_to_end_ = was_told_to_end_ || (!had_cause && job_.state.cause().has_value());
}

void JobEnding::name_lost_touch() {
  for (const auto& session : job_.sessions) {
    const int node = session->plan().index;
    if (!job_.has_started || !session->is_unfinished()) {
      continue;
    }
    const Duration most = session->agent_patience();
    job_.say(Note{LogLevel::kWarning, node,
                  "it has not said that its ranks have ended; its agent ends them when it finds hvdrun gone" +
                      (most > Duration::zero()
                           ? ", at the latest after " + duration_text(most) + " without a sign of life from here"
                           : std::string())});
  }
}

}  // namespace hvd::launch
