#include "launcher/steps/step_engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "launcher/engines/jsrun.h"
#include "launcher/engines/kubernetes_gang.h"
#include "launcher/engines/mpirun.h"
#include "launcher/engines/slurm.h"
#include "launcher/engines/spark_gang.h"
#include "launcher/engines/step_gang.h"
#include "launcher/job/hidden_texts.h"
#include "launcher/report/json_reporter.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/step_log.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {

bool has_only_local_hosts(const Placement& placement) {
  return std::all_of(placement.nodes.begin(), placement.nodes.end(),
                     [](const NodePlan& node) { return is_here(node.host); });
}

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

Result<std::unique_ptr<Gang>> gang_of(EventLoop& loop, const JobSpec& job, const Placement& placement, Log& log,
                                      const std::function<void(const std::string&)>& say) {
  switch (job.launcher) {
    case LauncherKind::kSlurm:
      return StepGang::create(loop, job, slurm_step(), placement, log, say);
    case LauncherKind::kJsrun:
      return StepGang::create(loop, job, jsrun_step(), placement, log, say);
    case LauncherKind::kSpark:
      // The host list of such a job says only whether all executors are on this machine; the tasks report the rest.
      return SparkGang::create(loop, job, has_only_local_hosts(placement), log, say);
    case LauncherKind::kKubernetes:
      return KubernetesGang::create(loop, job, placement, log, say);
    case LauncherKind::kOwn:
    case LauncherKind::kMpi:
      break;
  }
  return std::unique_ptr<Gang>();
}

int report_no_start(const JobSpec& job, const Error& why, int signo) {
  const int code = signo != 0 ? 128 + signo : exit_code_of_start(why);
  if (!job.json_events) {
    write_error_line("hvdrun: the ranks could not be started: " + masked(why.message(), job.hidden));
    return code;
  }
  for (const std::string& event : json_refusal(why, code, std::chrono::system_clock::now, job.hidden)) {
    write_error_line(event);
  }
  return code;
}

}  // namespace hvd::launch
