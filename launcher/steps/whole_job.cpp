#include "launcher/steps/whole_job.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/page/page_file.h"
#include "launcher/placement/placement.h"
#include "launcher/run/start_plan.h"
#include "launcher/steps/job_hosts.h"
#include "launcher/steps/job_step.h"
#include "launcher/steps/restarted_job.h"
#include "launcher/steps/slurm_requeue.h"
#include "launcher/steps/step_log.h"
#include "launcher/transport/rank_limits.h"

namespace hvd::launch {

Result<int> run_whole_job(JobSpec job, const std::vector<std::string>& notices) {
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
  if (!job.slots_are_gpus) {  // else the nodes have not told yet how many ranks they get
    HVD_TRY(check_shown_ranks(job, placement.size));
  }
  if (!job.quiet && !job.json_events && !job.allocation.empty()) {
    write_error_line("hvdrun: " + job.allocation);
  }
  if (!job.quiet) {
    const auto log = log_of(job, [](std::string_view line) { write_error_line(line); });
    for (const std::string& notice : notices) {
      log->write(LogLevel::kWarning, notice);
    }
  }
  bool is_to_be_requeued = false;
  const SteadyClock clock;
  JobRecords records(job, clock);
  Result<int> code = 0;
  // A second start would turn machines away that have called the first.
  if (job.fresh.limit > 0 || (job.discovery.is_on() && job.join_file.empty())) {
    RestartedJob restarted(job, placement, records);
    code = restarted.run();
    is_to_be_requeued = restarted.is_to_be_requeued();
  } else {
    code = run_step({job, placement, {}, {}, {}, {}, {}, &is_to_be_requeued, &records});
  }
  if (is_to_be_requeued) {
    requeue(job);
  }
  return code;
}

}  // namespace hvd::launch
