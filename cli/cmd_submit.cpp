#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iostream>
#include <utility>

#include "cli/commands.h"
#include "cli/options/job_file_settings.h"
#include "cli/options/job_settings.h"
#include "cli/service_commands.h"
#include "launcher/job/hidden_texts.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/service/job_record.h"
#include "launcher/service/scheduler.h"
#include "launcher/service/supervisor.h"
#include "launcher/service/ticket.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

constexpr auto kLockTime = std::chrono::seconds(30);

Result<void> check_flags(const Flags& flags) {
  if (flags.job_file.empty() && !flags.command.empty()) {
    return Error(Code::kInvalid, "submit takes its job from a file, which may be one line, 'command: " +
                                     shown_text(flags.command.front()) + " ...'; as in: hvdrun submit -f job.yaml");
  }
  if (flags.job_file.empty()) {
    return Error(Code::kInvalid, "say which job with -f; as in: hvdrun submit -f job.json");
  }
  if (!flags.command.empty()) {
    return Error(Code::kInvalid, "'" + shown_text(flags.command.front()) + "': a job file says what to run");
  }
  if (!flags.input.empty() && flags.input != "none") {
    return Error(Code::kInvalid,
                 "--stdin " + shown_text(flags.input) + ": a submitted job outlives what would be read");
  }
  if (!flags.job_name.empty() && is_job_number(flags.job_name)) {
    return Error(Code::kInvalid,
                 "--name " + shown_text(flags.job_name) + ": a number would be taken for another job's; add a letter");
  }
  return {};
}

// Reads the job as if it had the cluster's first nodes.
Result<CliOptions> on_first_nodes(const CliOptions& options, const Cluster& cluster) {
  CliOptions meant = options;
  HVD_TRY_ASSIGN(meant.flags.job_text, read_job_text(meant.flags.job_file));
  HVD_TRY(apply_cluster(cluster, cluster.hosts, meant.flags));
  HVD_TRY(read_job_file_flags(meant.flags, meant));
  return meant;
}

JobRecord record_of(const CliOptions& options, const Cluster& cluster) {
  const JobRun& run = *options.file;
  JobRecord record;
  record.uuid = run.options.uuid;
  record.name = run.job.name;
  record.cluster = cluster.name;
  record.experiment = run.job.experiment;
  record.tool = tool_type(run.job.tool.kind);
  record.node_count = run.job.node_count;
  record.process_count = run.layout.size();
  record.min_nodes = run.job.is_elastic() ? run.job.least_nodes() : 0;
  record.max_nodes = run.job.is_elastic() ? run.job.most_nodes() : 0;
  record.priority = priority_of(run.job.priority);
  record.priority_word = run.job.priority;
  record.segment = run.segment;
  record.properties = properties_json(run);
  if (is_job_number(record.name)) {
    rename_job(record, "job-" + record.name);
  }
  return record;
}

Ticket ticket_of(const CliOptions& options, const JobSpec& job, const std::string& text) {
  Ticket ticket;
  ticket.words = options.words;
  ticket.environment = job.environment;
  ticket.cwd = job.cwd;
  ticket.file = options.flags.job_file;
  ticket.text = text;
  const mode_t own = ::umask(0);
  ::umask(own);
  ticket.umask = own;
  return ticket;
}

void forget(const StateDir& dir, const std::string& uuid) {
  forget_start(dir, uuid);
  static_cast<void>(dir.remove_run(uuid));  // the original error is reported
}

}  // namespace

Result<int> plan_on_cluster(const CliOptions& options) {
  HVD_TRY(check_flags(options.flags));
  HVD_TRY_ASSIGN(ServicePlace place, ServicePlace::open());
  HVD_TRY_ASSIGN(const ClusterRecord cluster, place.store.clusters().find(options.flags.cluster));
  HVD_TRY_ASSIGN(const CliOptions meant, on_first_nodes(options, cluster.cluster));
  return print_plan(meant);
}

Result<int> submit_job(const CliOptions& options) {
  HVD_TRY(check_flags(options.flags));
  HVD_TRY_ASSIGN(ServicePlace place, ServicePlace::open());
  HVD_TRY_ASSIGN(const ClusterRecord cluster, place.store.clusters().find(options.flags.cluster));
  // Report everything that is wrong with the job now, not when it starts.
  HVD_TRY_ASSIGN(const CliOptions meant, on_first_nodes(options, cluster.cluster));
  const Flags& flags = meant.flags;
  for (const std::string& notice : meant.notices) {
    std::cerr << "hvdrun: " << masked(notice, meant.job.hidden) << "\n";
  }
  if (!meant.file->job.hosts.empty()) {
    std::cerr << "hvdrun: the job file's hosts have no effect: the job gets nodes of cluster " << cluster.cluster.name
              << "\n";
  }
  JobRecord record = record_of(meant, cluster.cluster);
  if (record.name.front() == '-') {
    return Error(Code::kInvalid,
                 "a job called '" + record.name + "' could not be named on a command line; give another --name");
  }
  // The order matters: a record is never without its ticket, nor without a lock that shows whether its supervisor
  // lives. A process that removes what dead submits left may hold the lock for a moment, because the file exists before
  // it is locked.
  HVD_TRY_ASSIGN(const Fd lock, wait_for_lock(place.dir.lock_of(record.uuid), Deadline::after(kLockTime)));
  auto added = [&]() -> Result<JobRecord> {
    HVD_TRY(write_ticket(place.dir.ticket_of(record.uuid), ticket_of(meant, meant.job, *flags.job_text)));
    return place.store.add_job(record, !flags.job_name.empty());
  }();
  if (!added.ok()) {
    forget(place.dir, record.uuid);
    return added.error();
  }
  const std::string wanted = std::exchange(record, std::move(added).value()).name;
  if (record.name != wanted) {
    std::cerr << "hvdrun: this job is named " << record.name << ", because there is a job " << wanted << " already\n";
  }
  if (const auto started = start_supervisor(place.dir, record, lock); !started.ok()) {
    static_cast<void>(place.store.request_stop(record.id));
    static_cast<void>(place.store.remove_job(record.id));
    forget(place.dir, record.uuid);
    return started.error().with_context("cannot start the supervisor of the job");
  }
  print_submitted(record, options.json);
  return 0;
}

}  // namespace hvd::cli
