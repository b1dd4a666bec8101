#include "launcher/steps/job_step.h"

#include <signal.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/joining/join_calls.h"
#include "launcher/page/record_reporter.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/process/own_process.h"
#include "launcher/run/job_runner.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/suspension.h"
#include "launcher/steps/job_hosts.h"
#include "launcher/steps/open_files_of.h"
#include "launcher/steps/own_transports.h"
#include "launcher/steps/slurm_requeue.h"
#include "launcher/steps/step_engine.h"
#include "launcher/steps/step_log.h"
#include "launcher/steps/step_tree.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {
namespace {

// Says whether the signal, which came after the ranks, ends what was to follow them; 0: none came.
bool is_cut_short(const JobStep& step, const Result<int>& code, int signo) {
  return signo != 0 && step.on_late_signal && code.ok() && step.on_late_signal(signo, code.value());
}

}  // namespace

Result<int> run_step(const JobStep& step) {
  const JobSpec& job = step.job;
  ::signal(SIGPIPE, SIG_IGN);  // a reader that has gone becomes an error of write(2), which stops the job
  ::signal(SIGXFSZ, SIG_IGN);  // as does a file that grows beyond ulimit -f
  HVD_TRY(allow_files_for(job, agents_of(job, step.placement)));
  // before signals wait for the loop
  HVD_TRY_ASSIGN(std::optional<Tree> tree, step.tree ? step.tree() : tree_of(job));
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  JobRunner* runner = nullptr;
  Gang* gathering = nullptr;
  int signal_beside_ranks = 0;  // while the agents gather, or end
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
    } else if (signo == SIGTSTP) {
      stop_self(*loop);
    } else if (gathering != nullptr && (signo == SIGINT || signo == SIGTERM || signo == SIGHUP || is_notice)) {
      signal_beside_ranks = signo;
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
  const auto note_requeue = [&](bool was_told_to_end) {
    if (was_told_to_end && step.is_to_be_requeued != nullptr) {
      *step.is_to_be_requeued = is_to_go_back(job, notice, *log);
    }
  };
  HVD_TRY_ASSIGN(const OwnTransports own, make_own_transports(*loop, job, *log));
  const auto say_of_gang = [&runner, &job](const std::string& text) {
    if (runner == nullptr) {
      say(job, text);
    } else {
      runner->say(line_of(job, text));
    }
  };
  HVD_TRY_ASSIGN(const std::unique_ptr<Gang> gang, gang_of(*loop, job, step.placement, *log, say_of_gang));
  if (gang != nullptr) {
    gathering = gang.get();
    const auto gathered = gang->gather();
    gathering = nullptr;
    if (!gathered.ok()) {
      note_requeue(signal_beside_ranks == SIGTERM || signal_beside_ranks == SIGUSR1);
      return report_no_start(job, gathered.error(), signal_beside_ranks);
    }
  }
  Placement placement = gang != nullptr ? gang->placement() : step.placement;
  if (job.slots_are_gpus) {  // the nodes have told only now how many ranks they get
    HVD_TRY(check_shown_ranks(job, placement.size));
  }
  const auto setup = engine_of(*loop, job, placement, *log);
  if (!setup.ok()) {
    return report_no_start(job, setup.error(), 0);
  }
  // Under an engine each agent has one rank, and the runner counts agents as nodes; so the reporter does too.
  Placement agents = agents_of(job, placement);
  std::unique_ptr<HostSource> source = step.host_source ? step.host_source(*loop) : nullptr;
  if (source == nullptr && job.fresh.limit == 0) {  // a job that starts anew looks at the hosts between its starts
    source = host_source_of(*loop, job);
  }
  std::unique_ptr<JobReporter> reporter = reporter_of(job, agents);
  if (step.records != nullptr && step.records->is_any()) {
    step.records->begin(step.name);
    reporter = std::make_unique<RecordReporter>(std::move(reporter), *step.records, job, agents,
                                                std::chrono::system_clock::now);
  }
  if (step.report_by) {
    reporter = step.report_by(std::move(reporter), agents);
  }
  Transport* const calls = gang != nullptr ? &gang->transport() : setup.value().dial_back.get();
  const Transports transports{own.local.get(), own.ssh.get(), own.rsh.get(), calls, setup.value().engine.get()};
  Fd input;
  if (job.input != InputMode::kNone) {
    HVD_TRY_ASSIGN(input, take_standard_input());
  }
  std::unique_ptr<JoinCalls> joins;
  if (!job.join_file.empty()) {
    // Elsewhere a machine may join that the host list does not name.
    const bool is_local = job.launcher == LauncherKind::kSpark && has_only_local_hosts(step.placement);
    HVD_TRY_ASSIGN(joins, JoinCalls::listen(*loop, job.join_file, is_local, *log));
  }
  JobRunner owner(*loop, job, placement, agents, transports, *reporter, *log);
  owner.set_programs(step.programs);
  owner.set_late_programs(step.late_programs);
  owner.rewrite_output(step.rewrite);
  owner.take_input(std::move(input));
  if (tree) {
    owner.bring(*std::move(tree));
  }
  if (step.records != nullptr && step.records->has_page()) {
    owner.follow([records = step.records](const JobPicture& picture) { records->take(picture); });
  }
  if (source != nullptr) {
    owner.follow_hosts(*source, step.offers);
  }
  if (joins != nullptr) {
    owner.take_joiners(*joins);
  }
  runner = &owner;
  if (gang != nullptr) {
    gang->on_gone([&owner](const Error& why) { owner.on_engine_gone(why); });
  }
  const auto code = owner.run();
  give_standard_input_back(owner.untaken_input());
  runner = nullptr;  // what is logged from here on cannot use the loop
  if (gang != nullptr) {
    gathering = gang.get();
    gang->finish(!owner.has_lost_nodes());
    gathering = nullptr;
    if (const std::string words = gang->last_words(owner.was_told_to_end());
        !words.empty() && code.ok() && code.value() != 0) {
      say(job, words);
    }
  }
  const bool is_cut = is_cut_short(step, code, signal_beside_ranks);
  note_requeue(owner.was_told_to_end() ||
               (is_cut && (signal_beside_ranks == SIGTERM || signal_beside_ranks == SIGUSR1)));
  return is_cut ? Result<int>(128 + signal_beside_ranks) : code;
}

}  // namespace hvd::launch
