#include "launcher/run/job_runner.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/state/exit_codes.h"

namespace hvd::launch {
namespace {

// Whoever cannot meet the others may have called one whose host is gone, which is known after three heartbeats. The
// ranks themselves give up after the elastic timeout.
Duration time_to_meet(const JobSpec& spec) {
  constexpr auto kSlack = std::chrono::seconds(5);
  return std::min<Duration>(spec.heartbeat * kMissedHeartbeats + kSlack, spec.elastic_timeout / 4);
}

}  // namespace

JobRunner::JobRunner(EventLoop& loop, const JobSpec& spec, Placement& placement, Placement& agents,
                     Transports transports, JobReporter& reporter, Log& log, ConsoleFds console)
    : loop_(loop),
      spec_(spec),
      placement_(placement),
      agents_(agents),
      state_(agents_, spec.servers, spec.restart_limit, spec.grace, spec.least_ranks),
      logs_(loop, placement.size, static_cast<int>(agents_.nodes.size()),
            // Events always have tags beside them where both streams are one file: without a tag, a rank's line that
            // looks like an event could not be told from one.
            LogMuxOptions{spec.tags || (spec.json_events && is_same_file(console.out, console.err)),
                          spec.tags || spec.json_events, spec.timestamps, spec.color, spec.live,
                          [&spec](int rank) { return spec.answers && is_given_input(spec, rank); }, spec.gather,
                          spec.labels, spec.hidden, spec.shows_ranks,
                          [&spec](int rank) { return spec.shown_ranks.has(rank); }, console, spec.unkept},
            log_sink()),
      generations_(loop, placement, agents_,
                   {spec.least_ranks > 0 ? spec.least_ranks : placement.size,
                    std::max(most_ranks_of(spec), placement.size), spec.elastic_wait, time_to_meet(spec)},
                   generations_sink()),
      tree_(
          loop, spec, agents_,
          [this](int node, AgentMessage type, std::string_view body) {
            sessions_[static_cast<std::size_t>(node)]->send(type, body);
          },
          log),
      suspension_(loop, suspension_sink()),
      parts_{
          loop,    spec,  placement, agents_, state_,  generations_, sessions_,
          starts_, logs_, reporter,  log,     job_id_, loop.now(),   [this](const JobEvent& event) { apply(event); }},
      watch_(loop, watch_sink_of(parts_)),
      reports_(parts_, {start_, ending_, hosts_, engine_, away_, tree_, suspension_, stacks_, watch_}),
      hosts_(parts_, reports_, [this](int node) { start_.open_session(node); }),
      engine_(parts_, transports.engine),
      away_(parts_),
      output_(parts_),
      stacks_(parts_),
      deadlines_(parts_, stacks_, watch_),
      start_(parts_, transports, {tree_, hosts_, engine_, deadlines_, logs_}),
      ending_(parts_, hosts_, engine_, output_),
      changes_(parts_, hosts_),
      questions_(parts_, stacks_, watch_) {}

JobRunner::~JobRunner() {
  while (!sessions_.empty()) {
    sessions_.pop_back();  // a relayed session ends its stream through a session before it
  }
}

LogMux::Sink JobRunner::log_sink() {
  LogMux::Sink sink;
  sink.grant = [this](int node, std::uint64_t bytes) {
    ByteWriter body;
    body.u64(bytes);
    sessions_[static_cast<std::size_t>(node)]->send(AgentMessage::kCredit, body.str());
  };
  sink.on_failed = [this](const Error& why) { apply(OutputFailed{why}); };
  sink.on_sign = [this](int rank, FailureSigns::Sign sign) {
    apply(RankComplained{rank, sign == FailureSigns::Sign::kLost, loop_.now()});
  };
  sink.on_files_failed = [this](const Error& why) {
    const std::string what = spec_.shows_ranks ? ", and what its ranks print still comes here"
                                               : ", and what its ranks print is not kept there any more";
    parts_.say(Note{LogLevel::kError, -1, why.message() + "; the job goes on" + what});
    apply(FilesFailed{why});
  };
  return sink;
}

Suspension::Sink JobRunner::suspension_sink() {
  Suspension::Sink sink;
  sink.suspend = [this] {
    int count = 0;
    for (const auto& session : sessions_) {
      if (session->is_open() && session->ready() && !ending_.is_finishing()) {
        session->send(AgentMessage::kSuspend);
        ++count;
      }
    }
    return count;
  };
  sink.let_continue = [this] {
    // Also a node whose ranks are not started yet has been told to stop.
    for (const auto& session : sessions_) {
      if (session->is_open() && session->ready()) {
        session->send(AgentMessage::kContinue);
      }
    }
    deadlines_.on_continued();
    logs_.show_rows();
  };
  sink.leave_terminal = [this] { logs_.hide_rows(); };
  return sink;
}

Generations::Sink JobRunner::generations_sink() {
  Generations::Sink sink;
  sink.send = [this](int node, AgentMessage type, const std::string& body) {
    if (NodeSession& session = *sessions_[static_cast<std::size_t>(node)]; session.has_started()) {
      session.send(type, body);  // a node that is joining hears of the generation when it is started
    }
  };
  sink.broadcast = [this](AgentMessage type, const std::string& body) { parts_.broadcast(type, body); };
  sink.on_formed = [this](const Generation& generation, Duration pause) {
    apply(MembersChanged{generation.members, generation.is_repeated});
    parts_.say(news::GenerationFormed{generation, pause});
    apply(RanksReleased{generation.released, true});
    deadlines_.on_formed();
    hosts_.look_later();
  };
  sink.on_unmet = [this](const std::vector<int>& ranks) { apply(HostUnmet{ranks}); };
  sink.on_meeting_again = [this](const std::string& cause) {
    parts_.say(Note{LogLevel::kWarning, -1, cause + "; all meet again"});
  };
  sink.has_ended = [this](int rank) {
    const RankRecord& record = parts_.record(rank);
    return record.state == RankRecord::State::kEnded && record.status.is_success();
  };
  return sink;
}

void JobRunner::bring(Tree tree) {
  if (!spec_.sync_back.empty()) {
    ending_.keep_results(tree.root + "/" + kResultsFolder);
  }
  start_.bring(std::move(tree));
}

Result<void> JobRunner::keep_output() {
  if (!spec_.kept_dir.empty()) {
    HVD_TRY(logs_.keep_in(RankFilesOptions{spec_.kept_dir, 0, 1, spec_.kept_files}, false));
  }
  if (!spec_.output_dir.empty()) {
    const OutputRotation& rotation = spec_.output_rotation;
    RankFilesOptions options{spec_.output_dir, rotation.max_bytes, rotation.old_files, {}};
    if (spec_.fresh.before > 0) {
      options.marker = "hvdrun: all ranks were started again here (restart " + std::to_string(spec_.fresh.before) +
                       " of " + std::to_string(spec_.fresh.limit) + ")";
    }
    options.named_for = spec_.fresh.first_size;
    const auto kept = logs_.keep_in(options);
    return kept.ok() ? kept : kept.error().with_context("--output-filename");
  }
  return {};
}

int JobRunner::refuse(const Error& why, int code) {
  parts_.say(news::Refused{why, code});
  output_.flush_refusal();
  return code;
}

Result<int> JobRunner::run() {
  if (spec_.least_ranks > placement_.size) {
    const std::string least = std::to_string(spec_.least_ranks);
    const Error why(Code::kInvalid, "--min-np " + least + ": the job has room for " + std::to_string(placement_.size) +
                                        (placement_.size == 1 ? " rank" : " ranks") +
                                        " only; name more hosts or slots");
    return refuse(why, exit_code::kUsage);
  }
  if (const auto kept = keep_output(); !kept.ok()) {
    return refuse(kept.error(), exit_code::kOutputFailed);
  }
  state_.limit_resets(spec_.reset_limit);
  if (spec_.excludes_failed_hosts) {
    state_.exclude_hosts();
  }
  HVD_TRY(start_.make_secrets());
  if (const auto listening = hosts_.listen(); !listening.ok()) {
    return refuse(listening.error(), exit_code::kUsage);
  }
  questions_.listen();
  start_.begin(reports_, [this] { ending_.end_if_closed(); });
  if (!spec_.metrics_file.empty()) {
    watch_.keep_in(spec_.metrics_file);
  }
  if (spec_.metrics_place.is_on()) {
    watch_.serve(spec_.metrics_place);
  }
  HVD_TRY(loop_.run());
  questions_.stop();
  watch_.finish();
  // Write the ranks' output first, then report on the job: whether all of it could be written is part of the report.
  if (const auto written = output_.flush(); !written.ok()) {
    state_.on(OutputFailed{written.error()});
  }
  output_.tell_unwritten();
  if (const std::string results = ending_.results(); !results.empty()) {
    parts_.say(Note{LogLevel::kInfo, -1, results});
  } else if (state_.exit_code() == 0 && std::any_of(sessions_.begin(), sessions_.end(), [](const auto& session) {
               return !session->opened().is_local;  // on this machine results are where they belong
             })) {
    for (const std::string& pattern : spec_.sync_back) {
      parts_.say(Note{LogLevel::kWarning, -1, "no file of any host fits --sync-back '" + pattern + "'"});
    }
  }
  news::Ended ended{state_, loop_.now() - parts_.began};
  for (const auto& session : sessions_) {
    ended.ranks_may_stay.push_back(session->ranks_may_stay(spec_.grace));
  }
  parts_.say(ended);
  static_cast<void>(output_.flush());
  const int cut_short_by = output_.cut_short_by();
  return state_.exit_code() == 0 && cut_short_by != 0 ? 128 + cut_short_by : state_.exit_code();
}

void JobRunner::apply(const JobEvent& event) {
  for (const JobAction& action : state_.on(event)) {
    std::visit([this](const auto& a) { act(a); }, action);
  }
}

template <typename Action>
void JobRunner::act(const Action& action) {
  if constexpr (requires { start_.act(action); }) {
    start_.act(action);
  } else if constexpr (requires { changes_.act(action); }) {
    changes_.act(action);
  } else if constexpr (requires { deadlines_.act(action); }) {
    deadlines_.act(action);
  } else {
    ending_.act(action);
  }
}

void JobRunner::act(const StopNodes& action) {
  start_.end_input();
  ending_.act(action);
}

void JobRunner::act(const Finish& action) {
  generations_.stop();
  start_.stop();
  stacks_.stop();
  engine_.stop();
  deadlines_.stop();
  hosts_.stop();
  away_.stop();
  ending_.act(action);
}

void JobRunner::on_signal(int signo) {
  if (signo == SIGCONT || signo == SIGTTIN) {
    if (JobInput* const input = start_.input(); signo == SIGCONT && input != nullptr) {
      input->look_again();
    }
    return;
  }
  if (signo == SIGTSTP) {
    suspension_.begin();
    return;
  }
  const bool is_end = signo == SIGUSR1 && !spec_.requeued_job.empty();
  if ((signo == SIGUSR1 && !is_end) || signo == SIGUSR2) {
    if (parts_.has_started) {  // before that no rank is there to get it
      parts_.broadcast(AgentMessage::kForward, number_body(signo));
    }
    return;
  }
  if (output_.on_signal(signo)) {
    state_.on(Interrupted{signo});  // it is over, and only remembers that
    return;
  }
  if (is_end || signo == SIGTERM) {
    ending_.apply_notice(Interrupted{signo});
  } else {
    apply(Interrupted{signo});
  }
}

}  // namespace hvd::launch
