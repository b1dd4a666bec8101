#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/job_step.h"
#include "cli/options/job_settings.h"
#include "cli/own_transports.h"
#include "launcher/engines/kubernetes_gang.h"
#include "launcher/engines/mpirun.h"
#include "launcher/engines/slurm_gang.h"
#include "launcher/engines/slurm_notice.h"
#include "launcher/engines/spark_gang.h"
#include "launcher/joining/join_calls.h"
#include "launcher/logs/spdlog_log.h"
#include "launcher/offers/discovery_script.h"
#include "launcher/offers/equal_slots.h"
#include "launcher/offers/first_hosts.h"
#include "launcher/offers/watched_hostfile.h"
#include "launcher/placement/placement.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/process/own_process.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/restart_reporter.h"
#include "launcher/report/text_reporter.h"
#include "launcher/run/exit_codes.h"
#include "launcher/run/job_restarts.h"
#include "launcher/run/job_runner.h"
#include "launcher/sessions/relay_tree.h"
#include "launcher/transport/dial_back.h"
#include "launcher/transport/local.h"
#include "launcher/transport/rank_limits.h"
#include "runtime/base/open_files.h"
#include "runtime/io/event_loop.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

std::unique_ptr<JobReporter> reporter_of(const JobSpec& job, const Placement& placement) {
  if (job.json_events) {
    return std::make_unique<JsonReporter>(job, placement, std::chrono::system_clock::now);
  }
  return std::make_unique<TextReporter>(placement, TextOptions{job.quiet, job.live && ::isatty(STDERR_FILENO) == 1});
}

// JsonLog writes diagnostics as events.
class JsonLog final : public Log {
 public:
  JsonLog(LogLevel lowest, std::function<void(std::string_view)> write) : lowest_(lowest), write_(std::move(write)) {}

  void write(LogLevel level, std::string_view message) override {
    if (level >= lowest_) {
      write_(json_log_line(level, message, std::chrono::system_clock::now));
    }
  }

 private:
  const LogLevel lowest_;
  const std::function<void(std::string_view)> write_;
};

// Writes where there is no job yet, or no longer one.
void write_error_line(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::unique_ptr<Log> log_of(const JobSpec& job, std::function<void(std::string_view)> write) {
  const LogLevel lowest = job.verbose ? LogLevel::kDebug : LogLevel::kWarning;
  if (job.json_events) {
    return std::make_unique<JsonLog>(lowest, std::move(write));
  }
  return make_spdlog_log(lowest, std::move(write));
}

bool has_only_local_hosts(const Placement& placement) {
  return std::all_of(placement.nodes.begin(), placement.nodes.end(),
                     [](const NodePlan& node) { return is_here(node.host); });
}

// Refuses a job that would fail half-way for lack of descriptors: it needs one per connection, or three pipes and a
// process. `wanted` counts more: where the tree does not work all nodes are reached from here, perhaps by the system's
// ssh, and under an engine strangers may hold connections too.
Result<void> allow_files_for(const JobSpec& job, const Placement& agents) {
  constexpr std::uint64_t kOwn = 32;  // includes a few that come and go
  constexpr std::uint64_t kConnection = 1;
  constexpr std::uint64_t kLocal = 2;  // includes the agent's standard error
  constexpr std::uint64_t kCommand = 4;
  std::uint64_t needed = kOwn;
  std::uint64_t wanted = kOwn;
  const std::vector<int> relays = relays_of(job, agents);
  for (const NodePlan& node : agents.nodes) {
    const TransportKind kind = choose_transport(job, node.host);
    const auto own = kind == TransportKind::kRsh ? kCommand : kind == TransportKind::kLocal ? kLocal : kConnection;
    wanted += kind == TransportKind::kSsh ? kCommand : own;
    needed += relays[static_cast<std::size_t>(node.index)] < 0 ? own : 0;
  }
  wanted += job.launcher == LauncherKind::kMpi || !job.join_file.empty() ? kMostCallers : 0;
  if (allow_open_files(wanted).ok()) {
    return {};
  }
  const auto allowed = allow_open_files(needed);
  const std::size_t nodes = agents.nodes.size();
  return allowed.ok()
             ? allowed
             : Result<void>(Error(allowed.error().code(),
                                  "for " + std::to_string(nodes) + (nodes == 1 ? " node " : " nodes ") +
                                      allowed.error().message() +
                                      "; raise nofile in /etc/security/limits.conf (of a service: LimitNOFILE=)"));
}

// EngineSetup is the engine that starts the agents for us, and the transport by which they connect.
struct EngineSetup {
  std::unique_ptr<EngineOrphans> orphans;
  std::unique_ptr<DialBack> dial_back;
  std::unique_ptr<Engine> engine;
};

Result<EngineSetup> engine_of(EventLoop& loop, const JobSpec& job, const Placement& placement, Log& log) {
  EngineSetup setup;
  if (job.launcher != LauncherKind::kMpi) {
    return setup;
  }
  const auto found = find_open_mpi(job.environment);
  if (!found.ok()) {
    return found.error().with_context("--launcher mpi");
  }
  HVD_TRY_ASSIGN(const DialBackOptions options, DialBackOptions::make(has_only_local_hosts(placement)));
  HVD_TRY_ASSIGN(setup.dial_back, DialBack::listen(loop, options, log));
  MpirunOptions mpirun;
  mpirun.agent_path = job.agent_path;
  mpirun.environment = job.environment;
  mpirun.open_files = job.open_files;
  mpirun.args = job.mpi_args;
  mpirun.binding = job.binding_args;
  mpirun.is_root = ::geteuid() == 0;
  HVD_TRY_ASSIGN(setup.orphans, EngineOrphans::adopt());
  setup.engine =
      std::make_unique<Engine>(loop, mpirun_command(placement, mpirun, setup.dial_back->place(), options.key()));
  return setup;
}

}  // namespace

namespace {

std::unique_ptr<HostSource> host_source_of(EventLoop& loop, const JobSpec& job) {
  const HostDiscovery& discovery = job.discovery;
  std::unique_ptr<HostSource> source;
  if (!discovery.script.empty()) {
    source = std::make_unique<DiscoveryScript>(
        loop,
        DiscoveryScript::Options{discovery.script, job.environment, job.cwd, discovery.slots, discovery.interval});
  } else if (!discovery.hostfile.empty()) {
    source = std::make_unique<WatchedHostfile>(loop, discovery.hostfile, discovery.slots, discovery.interval);
  }
  if (source != nullptr && discovery.is_slots_of_all) {
    source = std::make_unique<EqualSlots>(std::move(source), discovery.slots);
  }
  return source;
}

}  // namespace

Result<HostList> await_hosts_of(const JobSpec& job) {
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  const std::unique_ptr<HostSource> source = host_source_of(*loop, job);
  const int least = job.size > 0 ? job.size : job.least_ranks;
  return await_first_hosts(*loop, *source, least, job.elastic_timeout,
                           [](const std::string& line) { write_error_line("hvdrun: " + line); });
}

namespace {

// Runs a job whose ranks cannot go on without one another, again and again until it has ended. Each start is a step of
// its own, on the hosts that there are then.
class RestartedJob {
 public:
  RestartedJob(JobSpec job, Placement placement)
      : job_(std::move(job)), placement_(std::move(placement)), first_timeout_(job_.timeout) {
    job_.fresh.first_size = placement_.size;
    job_.least_ranks = job_.least_ranks > 0 ? job_.least_ranks : placement_.size;
  }

  [[nodiscard]] bool is_to_be_requeued() const { return is_to_be_requeued_; }

  Result<int> run() {
    StartMemory memory{JobRestarts(hosts(), limits()), clock_.now(), 0, {}};
    for (;;) {
      const auto report_by = [&](std::unique_ptr<JobReporter> own, const Placement&) {
        return std::make_unique<RestartReporter>(std::move(own), placement_, clock_, memory);
      };
      HVD_TRY_ASSIGN(const int code, run_step({job_, placement_, {}, report_by, {}, {}, {}, &is_to_be_requeued_}));
      if (!memory.restarts.is_due()) {
        return code == 0 && !memory.restarts.has_kept_all() ? exit_code::kOutputFailed : code;
      }
      const auto placed = place_again(memory.restarts);
      if (!placed.ok()) {
        say_end(placed.error(), code);
        return stopped_by_ != 0 ? 128 + stopped_by_ : code;
      }
      job_.fresh.before = memory.restarts.number();
      job_.input = InputMode::kNone;  // all of it went to the first start
      if (first_timeout_ > Duration::zero()) {
        job_.timeout = std::max(Duration(std::chrono::milliseconds(1)), memory.began + first_timeout_ - clock_.now());
      }
    }
  }

 private:
  [[nodiscard]] HostList hosts() const {
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

  [[nodiscard]] JobRestarts::Limits limits() const {
    const HostDiscovery& discovery = job_.discovery;
    const int most = !discovery.is_on()         ? placement_.size
                     : discovery.most_ranks > 0 ? discovery.most_ranks
                                                : kMostRanks;
    return {job_.fresh.limit, job_.least_ranks, discovery.is_on(),
            HostOffers::Limits{most, discovery.cooldown_least, discovery.cooldown_most}};
  }

  // Places the ranks on the hosts that there are, once these are enough.
  Result<void> place_again(JobRestarts& restarts) {
    HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock_));
    HVD_TRY(loop->watch_signals(without_ignored({SIGINT, SIGTERM, SIGHUP}), [&](int signo) {
      stopped_by_ = signo;
      loop->stop();
    }));
    const std::unique_ptr<HostSource> source = host_source_of(*loop, job_);
    SeatsWanted wanted;
    wanted.best = job_.elastic_wait > Duration::zero() ? placement_.size : job_.least_ranks;
    wanted.best_patience = job_.elastic_wait;
    wanted.least = job_.least_ranks;
    wanted.patience = source != nullptr ? job_.elastic_timeout : Duration::zero();
    const auto enough = await_seats(*loop, source.get(), restarts.offers(), wanted,
                                    [](const std::string& line) { write_error_line("hvdrun: " + line); });
    if (stopped_by_ != 0) {
      return Error(Code::kCancelled, "hvdrun got " + signal_name(stopped_by_));
    }
    HVD_TRY(enough);
    Seats seats = restarts.offers().seats(clock_.now());
    HVD_TRY_ASSIGN(placement_, place(seats.hosts, seats.count));
    job_.hosts = std::move(seats.hosts);
    job_.size = seats.count;
    return {};
  }

  // The job ends between two starts.
  void say_end(const Error& why, int code) const {
    if (!job_.json_events) {
      return write_error_line("hvdrun: the job is not started again: " + why.message());
    }
    for (const std::string& line : json_refusal(why, code, std::chrono::system_clock::now)) {
      write_error_line(line);
    }
  }

  const SteadyClock clock_;
  JobSpec job_;
  Placement placement_;
  const Duration first_timeout_;
  int stopped_by_ = 0;
  bool is_to_be_requeued_ = false;
};

}  // namespace

Result<int> run_job(const CliOptions& options) {
  JobSpec job = options.job;
  if (job.discovery.is_on()) {
    HVD_TRY_ASSIGN(job.hosts, await_hosts_of(job));
    long long slots = 0;
    for (const HostSpec& host : job.hosts) {
      slots += host.slots;
    }
    const int most = job.discovery.most_ranks;
    job.size = static_cast<int>(most > 0 ? std::min<long long>(slots, most) : slots);
    HVD_TRY(check_rank_count(job.hosts, job.size, limits_of_this_machine()));
  }
  HVD_TRY_ASSIGN(const Placement placement, place(job.hosts, job.size));
  HVD_TRY(check_input_rank(job, placement.size));
  if (!job.quiet && !job.json_events && !job.allocation.empty()) {
    write_error_line("hvdrun: " + job.allocation);
  }
  if (!options.job.quiet) {
    const auto log = log_of(options.job, [](std::string_view line) { write_error_line(line); });
    for (const std::string& notice : options.notices) {
      log->write(LogLevel::kWarning, notice);
    }
  }
  bool is_to_be_requeued = false;
  Result<int> code = 0;
  if (job.fresh.limit > 0) {
    RestartedJob restarted(job, placement);
    code = restarted.run();
    is_to_be_requeued = restarted.is_to_be_requeued();
  } else {
    code = run_step({job, placement, {}, {}, {}, {}, {}, &is_to_be_requeued});
  }
  if (is_to_be_requeued) {
    requeue(job);
  }
  return code;
}

namespace {

// Starts the gang of a job whose agents an engine starts, with the placement known only then; null: it has none.
Result<std::unique_ptr<Gang>> gang_of(EventLoop& loop, const JobStep& step, Log& log) {
  const auto say = [](const std::string& line) { write_error_line("hvdrun: " + line); };
  switch (step.job.launcher) {
    case LauncherKind::kSlurm:
      return SlurmGang::create(loop, step.job, step.placement, log, say);
    case LauncherKind::kSpark:
      // The host list of such a job says only whether all executors are on this machine; the tasks report the rest.
      return SparkGang::create(loop, step.job, has_only_local_hosts(step.placement), log, say);
    case LauncherKind::kKubernetes:
      return KubernetesGang::create(loop, step.job, step.placement, log, say);
    case LauncherKind::kOwn:
    case LauncherKind::kMpi:
      break;
  }
  return std::unique_ptr<Gang>();
}

// Reports why no rank of a job with a gang could be started, and returns hvdrun's exit code, as for any job that does
// not start.
int report_no_gang(const Error& why, int signo) {
  write_error_line("hvdrun: the ranks could not be started: " + why.message());
  return signo != 0                                                         ? 128 + signo
         : why.code() == Code::kInvalid                                     ? exit_code::kUsage
         : why.code() == Code::kTimeout || why.code() == Code::kUnreachable ? exit_code::kUnreachable
         : why.code() == Code::kLostPeer                                    ? exit_code::kNodeLost
                                                                            : exit_code::kStartFailed;
}

// A job whose time is over, and not one that its user has cancelled, goes back into Slurm's queue.
void note_requeue(const JobStep& step, SlurmNotice& notice, Log& log) {
  if (step.job.requeued_job.empty() || step.is_to_be_requeued == nullptr) {
    return;
  }
  const auto settled = notice.settle();
  *step.is_to_be_requeued = settled.ok();
  if (!settled.ok()) {
    log.write(LogLevel::kWarning, "Slurm's job " + step.job.requeued_job +
                                      " does not go back into the queue: " + settled.error().message());
  }
}

}  // namespace

void requeue(const JobSpec& job) {
  const auto log = log_of(job, [](std::string_view line) { write_error_line(line); });
  const std::string who = "Slurm's job " + job.requeued_job;
  // Say this first: Slurm ends this process too when it takes the job.
  log->write(LogLevel::kWarning, who + " goes back into the queue, to begin anew when its turn comes");
  if (const auto done = requeue_slurm_job(job.requeued_job, job.environment); !done.ok()) {
    log->write(LogLevel::kError, who + " cannot go back into the queue: " + done.error().message() +
                                     "; is it a batch job, submitted with --requeue?");
  }
}

Result<int> run_step(const JobStep& step) {
  const JobSpec& job = step.job;
  ::signal(SIGPIPE, SIG_IGN);  // a reader that has gone becomes an error of write(2), which stops the job
  HVD_TRY(allow_files_for(job, agents_of(job, step.placement)));
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  JobRunner* runner = nullptr;
  Gang* gathering = nullptr;
  int signal_while_gathering = 0;
  std::unique_ptr<Log> log;
  SlurmNotice notice(*loop, job.requeued_job, job.environment,
                     [&log](const std::string& line) { log->write(LogLevel::kWarning, line); });
  // Do this first: it blocks the signals before any thread exists that could receive them.
  std::vector<int> signals = without_ignored({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP});
  signals.insert(signals.end(), {SIGCONT, SIGTTIN});
  HVD_TRY(loop->watch_signals(signals, [&](int signo) {
    const bool is_notice = !job.requeued_job.empty() && (signo == SIGTERM || signo == SIGUSR1);
    if (is_notice) {
      notice.ask();
    }
    if (runner != nullptr) {
      runner->on_signal(signo);
    } else if (gathering != nullptr && (signo == SIGINT || signo == SIGTERM || signo == SIGHUP || is_notice)) {
      signal_while_gathering = signo;
      gathering->interrupt("hvdrun got " + signal_name(signo));
    }
  }));
  // Diagnostics go between the lines that the ranks print, never inside one.
  log = log_of(job, [&runner, &loop, thread = std::this_thread::get_id()](auto line) {
    if (runner == nullptr) {
      write_error_line(line);
    } else if (std::this_thread::get_id() == thread) {
      runner->say(line);
    } else {
      loop->post([&runner, line = std::string(line)] { runner->say(line); });
    }
  });
  HVD_TRY_ASSIGN(const OwnTransports own, make_own_transports(*loop, job, *log));
  HVD_TRY_ASSIGN(const std::unique_ptr<Gang> gang, gang_of(*loop, step, *log));
  if (gang != nullptr) {
    gathering = gang.get();
    const auto gathered = gang->gather();
    gathering = nullptr;
    if (!gathered.ok()) {
      if (signal_while_gathering == SIGTERM || signal_while_gathering == SIGUSR1) {
        note_requeue(step, notice, *log);
      }
      return report_no_gang(gathered.error(), signal_while_gathering);
    }
  }
  Placement placement = gang != nullptr ? gang->placement() : step.placement;
  const Placement agents = agents_of(job, placement);
  // Under an engine each agent has one rank, and the runner counts agents as nodes; so the reporter does too.
  std::unique_ptr<HostSource> source = step.host_source ? step.host_source(*loop) : nullptr;
  if (source == nullptr && job.fresh.limit == 0) {  // a job that starts anew looks at the hosts between its starts
    source = host_source_of(*loop, job);
  }
  const Placement& told = source != nullptr || !job.join_file.empty() ? placement : agents;
  std::unique_ptr<JobReporter> reporter = reporter_of(job, told);
  if (step.report_by) {
    reporter = step.report_by(std::move(reporter), told);
  }
  HVD_TRY_ASSIGN(const EngineSetup setup, engine_of(*loop, job, placement, *log));
  Transport* const calls = gang != nullptr ? &gang->transport() : setup.dial_back.get();
  const Transports transports{own.local.get(), own.ssh.get(), own.rsh.get(), calls, setup.engine.get()};
  Fd input;
  if (job.input != InputMode::kNone) {
    HVD_TRY_ASSIGN(input, take_standard_input());
  }
  std::unique_ptr<JoinCalls> joins;
  if (!job.join_file.empty()) {
    HVD_TRY_ASSIGN(joins, JoinCalls::listen(*loop, job.join_file, *log));
  }
  JobRunner owner(*loop, job, placement, transports, *reporter, *log);
  owner.set_programs(step.programs);
  owner.set_late_programs(step.late_programs);
  owner.rewrite_output(step.rewrite);
  owner.take_input(std::move(input));
  if (source != nullptr) {
    owner.follow_hosts(placement, *source);
  }
  if (joins != nullptr) {
    owner.take_joiners(placement, *joins);
  }
  runner = &owner;
  if (gang != nullptr) {
    gang->on_gone([&owner](const Error& why) { owner.on_engine_gone(why); });
  }
  const auto code = owner.run();
  runner = nullptr;  // what is logged from here on cannot use the loop
  if (gang != nullptr) {
    gathering = gang.get();
    gang->finish();
    gathering = nullptr;
  }
  if (owner.was_told_to_end()) {
    note_requeue(step, notice, *log);
  }
  return code;
}

}  // namespace hvd::cli
