#include "launcher/steps/restarted_job.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "launcher/offers/first_hosts.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/restart_reporter.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/suspension.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/job_hosts.h"
#include "launcher/steps/step_log.h"
#include "launcher/transport/rank_limits.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

RestartedJob::RestartedJob(JobSpec job, Placement placement, JobRecords& records,
                           std::function<Result<int>(const JobStep&)> run)
    : job_(std::move(job)),
      placement_(std::move(placement)),
      records_(records),
      run_(std::move(run)),
      first_timeout_(job_.timeout) {
  job_.fresh.first_size = placement_.size;
  job_.least_ranks = job_.least_ranks > 0 ? job_.least_ranks : placement_.size;
}

Result<int> RestartedJob::run() {
  StartMemory memory{JobRestarts(hosts(), limits()), clock_.now(), 0, {}};
  for (;;) {
    const auto report_by = [&](std::unique_ptr<JobReporter> own, const Placement&) {
      return std::make_unique<RestartReporter>(std::move(own), placement_, clock_, memory);
    };
    memory.restarts.on_begun();
    JobStep step{job_, placement_, {}, report_by, {}, {}, {}, &is_to_be_requeued_, &records_};
    step.offers = &memory.restarts.offers();
    step.on_late_signal = [&](int signo, int) {
      if (memory.restarts.is_due()) {
        stopped_by_ = signo;
      }
      return stopped_by_ != 0;
    };
    HVD_TRY_ASSIGN(const int code, run_(step));
    if (stopped_by_ != 0) {
      say_end(stopped_error(), code);
      return code;
    }
    if (!memory.restarts.is_due()) {
      return code == 0 && !memory.restarts.has_kept_all() ? exit_code::kOutputFailed : code;
    }
    if (memory.restarts.number() > 0) {
      job_.input = InputMode::kNone;  // all of it went to the first start
    }
    const auto placed = place_again(memory.restarts);
    if (!placed.ok()) {
      say_end(placed.error(), code);
      return stopped_by_ != 0 ? 128 + stopped_by_ : code;
    }
    job_.fresh.before = memory.restarts.number();
    if (memory.restarts.number() == 0) {
      memory.began = clock_.now();  // no rank has run yet
    }
    if (first_timeout_ > Duration::zero()) {
      job_.timeout = std::max(Duration(std::chrono::milliseconds(1)), memory.began + first_timeout_ - clock_.now());
    }
  }
}

HostList RestartedJob::hosts() const {
  if (!job_.hosts.empty()) {
    return job_.hosts;
  }
  HostList here;  // this machine
  for (const NodePlan& node : placement_.nodes) {
    here.push_back(node.host);
    here.back().slots = node.local_size();
  }
  return here;
}

JobRestarts::Limits RestartedJob::limits() const {
  const HostDiscovery& discovery = job_.discovery;
  const int most = !discovery.is_on() ? placement_.size : discovery.most_ranks > 0 ? discovery.most_ranks : kMostRanks;
  return {job_.fresh.limit, job_.least_ranks, discovery.is_on(),
          HostOffers::Limits{most, discovery.cooldown_least, discovery.cooldown_most}};
}

Result<void> RestartedJob::place_again(JobRestarts& restarts) {
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock_));
  HVD_TRY(loop->watch_signals(without_ignored({SIGINT, SIGTERM, SIGHUP, SIGTSTP}), [&](int signo) {
    if (signo == SIGTSTP) {
      return stop_self(*loop);
    }
    stopped_by_ = signo;
    loop->stop();
  }));
  const std::unique_ptr<HostSource> source = host_source_of(*loop, job_);
  SeatsWanted wanted;
  const Duration best_patience = restarts.number() > 0 ? job_.elastic_wait : Duration::zero();
  wanted.best = best_patience > Duration::zero() ? placement_.size : job_.least_ranks;
  wanted.best_patience = best_patience;
  wanted.least = job_.least_ranks;
  wanted.patience = source != nullptr ? job_.elastic_timeout : Duration::zero();
  const auto enough = await_seats(*loop, source.get(), restarts.offers(), wanted,
                                  [this](const std::string& line) { say_unless_quiet(job_, line); });
  if (stopped_by_ != 0) {
    return stopped_error();
  }
  HVD_TRY(enough);
  Seats seats = restarts.offers().seats(clock_.now());
  HVD_TRY(check_rank_count(seats.hosts, seats.count, limits_of_this_machine()));
  HVD_TRY_ASSIGN(placement_, place(seats.hosts, seats.count));
  HVD_TRY(check_input_rank(job_, placement_.size));
  job_.hosts = std::move(seats.hosts);
  job_.size = seats.count;
  return {};
}

Error RestartedJob::stopped_error() const {
  return {Code::kCancelled, "hvdrun got " + signal_name(stopped_by_)};
}

void RestartedJob::say_end(const Error& why, int code) {
  for (const std::string& event : json_refusal(why, code, std::chrono::system_clock::now, job_.hidden)) {
    records_.add(event);
    if (job_.json_events) {
      write_error_line(event);
    }
  }
  if (!job_.json_events) {
    write_error_line("hvdrun: the job is not started again: " + why.message());
  }
}

}  // namespace hvd::launch
