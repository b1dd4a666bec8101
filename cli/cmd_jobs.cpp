#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options/job_settings.h"
#include "cli/service_commands.h"
#include "cli/slurm_jobs.h"
#include "launcher/process/other_process.h"
#include "launcher/process/own_process.h"
#include "launcher/report/listing.h"
#include "launcher/service/supervisor.h"
#include "launcher/service/ticket.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front
using Json = nlohmann::ordered_json;

// More ended jobs are seldom looked for; --all shows them.
constexpr std::int64_t kNewestEnded = 20;
constexpr auto kLookAgain = std::chrono::hours(1);
// Slurm's controller serves a whole site.
constexpr auto kAskSlurmAgain = std::chrono::seconds(5);
// A controller that starts anew does not answer for some time.
constexpr auto kSlurmPatience = std::chrono::minutes(10);

// A job whose program did not end by itself has hvdrun's own code, as `wait` does.
std::string exit_code_of(const JobRecord& job) {
  return has_ended(job.state) ? std::to_string(job.exit_code.value_or(job.status)) : "";
}

std::string table_of(const std::vector<JobRecord>& jobs) {
  std::vector<std::vector<std::string>> rows;
  for (const JobRecord& job : jobs) {
    rows.push_back({job.engine_job.empty() ? std::to_string(job.id) : job.engine_job, job.name, job.cluster, job.tool,
                    listed_nodes(job), listed_state(job), exit_code_of(job)});
  }
  return listing({{"Id", true}, {"Name"}, {"Cluster"}, {"Tool"}, {"Nodes", true}, {"State"}, {"Exit code", true}},
                 rows);
}

// Returns what has happened to a job that has come into its state.
std::string change_of(const JobRecord& job) {
  switch (job.state) {
    case ExecutionState::kQueued:
      return "was queued";
    case ExecutionState::kRunning:
      return "began to run";
    case ExecutionState::kTerminating:
      return "was asked to stop";
    case ExecutionState::kSucceeded:
      return "succeeded";
    case ExecutionState::kFailed:
      break;
  }
  return was_stopped(job) ? "was stopped"
                          : "failed" + (job.exit_code ? " with exit code " + std::to_string(*job.exit_code) : "");
}

// Handles the death of the job's supervisor while a user waits for the job.
Result<void> look_after(ServicePlace& place, const JobRecord& job) {
  return has_ended(job.state) || !job.engine_job.empty() || is_locked(place.dir.lock_of(job.uuid))
             ? Result<void>()
             : recover(place.dir, place.store);
}

// Tells the supervisor of the job to end; false: it is dead, or cannot be seen from here.
bool signal_supervisor(const ServicePlace& place, const JobRecord& job) {
  const Fd supervisor = open_supervisor(place.dir, job);
  if (supervisor.is_open()) {
    signal_process(supervisor, job.pid, SIGTERM);
  }
  return supervisor.is_open();
}

// Ends a running job all the same where its record cannot say that it is to stop, as on a full disk.
Error stop_unrecorded(ServicePlace& place, const JobRecord& job, const Error& why) {
  const auto now = place.store.job(job.id);
  const bool is_told = why.code() == Code::kResource && now.ok() && now.value().state == ExecutionState::kRunning &&
                       signal_supervisor(place, now.value());
  return is_told ? why.with_context("job " + job.name + " was told to end, which cannot be recorded; run hvdrun stop " +
                                    job.name + " again when it can be")
                 : why;
}

Result<void> end_job(ServicePlace& place, const JobRecord& job) {
  if (!job.engine_job.empty()) {
    return has_ended(job.state) ? Result<void>() : cancel_slurm_job(job);
  }
  const auto asked = place.store.request_stop(job.id);
  if (!asked.ok()) {
    return stop_unrecorded(place, job, asked.error());
  }
  place.dir.wake();
  if (asked.value() == StopOutcome::kTerminating) {
    HVD_TRY_ASSIGN(const JobRecord now, place.store.job(job.id));
    if (!signal_supervisor(place, now) && !has_ended(now.state) && is_locked(place.dir.lock_of(now.uuid))) {
      std::cerr << "hvdrun: the process that runs job " << job.name << ", " << now.pid
                << ", cannot be seen from here; run hvdrun stop " << job.name << " where it is\n";
    }
  }
  return {};
}

// Adds the jobs of engines: all that have not ended, and the newest that have.
Result<void> add_engine_jobs(ServicePlace& place, bool wants_all, std::vector<JobRecord>& jobs) {
  HVD_TRY_ASSIGN(std::vector<JobRecord> of_engines, place.engine_jobs.all());
  if (const auto asked = refresh_slurm_jobs(place, of_engines); !asked.ok()) {
    std::cerr << "hvdrun: " << asked.error().message() << "; they are shown as they were known last\n";
  }
  auto ended =
      std::count_if(of_engines.begin(), of_engines.end(), [](const JobRecord& j) { return has_ended(j.state); });
  for (JobRecord& job : of_engines) {
    const bool is_old = has_ended(job.state) && ended-- > kNewestEnded;
    if (wants_all || !is_old) {
      jobs.push_back(std::move(job));
    }
  }
  return {};
}

// Says in lines what a waiting job waits for: its record does not know how busy its cluster is.
Result<std::vector<std::string>> describe_waiting(ServicePlace& place, const JobRecord& job) {
  HVD_TRY_ASSIGN(const ClusterRecord cluster, place.store.clusters().find(job.cluster));
  const auto count = [&cluster](auto&& is_it) {
    return static_cast<int>(std::count_if(cluster.nodes.begin(), cluster.nodes.end(), is_it));
  };
  const int idle = count([](const NodeRecord& node) { return node.state == ClusterNodeState::kIdle; });
  const int in_service = count([](const NodeRecord& node) { return node.is_in_service; });
  HVD_TRY_ASSIGN(std::vector<AvoidedNode> avoided, place.store.clusters().avoided().of(job.id));
  std::erase_if(avoided, [](const AvoidedNode& node) { return !is_unusable(node.health, now_ms()); });
  const int needed = job.max_nodes > 0 ? job.min_nodes : job.node_count;
  std::string text = "it waits for " + counted(static_cast<std::size_t>(needed), "node") + " of cluster " +
                     job.cluster + ": " + std::to_string(idle) + " of " + std::to_string(cluster.nodes.size()) +
                     " are idle";
  if (in_service < needed) {
    text += ", and no more than " + std::to_string(in_service) + " are in service; hvdrun cluster resume " +
            job.cluster + " takes the others back";
  } else if (!avoided.empty()) {
    text += ", and it does not get those for a while that it could not reach; hvdrun cluster resume " + job.cluster +
            " lets it try them at once";
  } else if (idle >= needed) {
    text += ", and jobs that come first are taking theirs";
  }
  std::vector<std::string> lines = unusable_lines(cluster);
  for (const AvoidedNode& node : avoided) {
    lines.push_back(node.health.why + "; this job does not get it before " + utc_text(node.health.unusable_until_ms));
  }
  lines.insert(lines.begin(), std::move(text));
  return lines;
}

// Returns the last line of hvdrun's own words on the job, which names the first failure; empty: there are none.
std::string last_line(std::string details) {
  while (details.ends_with('\n')) {
    details.pop_back();
  }
  return details.substr(details.rfind('\n') + 1);
}

}  // namespace

Result<int> print_json(const std::string& json, const std::string& field) {
  if (field.empty()) {
    std::cout << json << "\n";
    return 0;
  }
  const auto value = json_field(json, field);
  if (!value) {
    return Error(Code::kInvalid, "--field " + shown_text(field) + ": there is no such key; --json shows all");
  }
  std::cout << *value << "\n";
  return 0;
}

void print_submitted(const JobRecord& job, bool as_json) {
  if (as_json) {
    std::cout << record_json(job) << "\n";
    return;
  }
  if (job.engine_job.empty()) {
    const std::string nodes = listed_nodes(job) + (job.node_count == 1 && job.max_nodes <= 1 ? " node" : " nodes");
    std::cout << "job " << job.name << " is number " << job.id << ", and waits for " << nodes << " of cluster "
              << job.cluster << "\n";
  } else {
    std::cout << "job " << job.name << " is " << job.engine_job << ", and waits in the engine's queue\n";
  }
  std::cout << "what it prints: hvdrun logs -f " << job.name << "\n"
            << "its end: hvdrun wait " << job.name << "; end it now: hvdrun stop " << job.name << "\n";
}

Result<JobRecord> await_end(ServicePlace& place, const JobRecord& begun, FolderWatch& watch,
                            const std::function<Result<void>(const JobRecord&)>& look) {
  const bool is_slurm_s = !begun.engine_job.empty();
  if (is_slurm_s) {
    // hvdrun leaves its exit code there. Where somebody has removed the folder, Slurm alone is asked.
    static_cast<void>(watch.add(begun.output));
  }
  Deadline silence = Deadline::after(kSlurmPatience);
  bool has_told = false;
  for (;;) {
    auto found = place.again(begun);
    if (!found.ok() && is_slurm_s && found.error().code() != Code::kNotFound && !silence.has_passed()) {
      if (!std::exchange(has_told, true)) {
        std::cerr << "hvdrun: " << found.error().message() << "; it is asked again\n";
      }
      watch.wait(Duration(kAskSlurmAgain));
      continue;
    }
    HVD_TRY_ASSIGN(const JobRecord job, std::move(found));
    silence = Deadline::after(kSlurmPatience);
    has_told = false;
    HVD_TRY(look(job));
    if (has_ended(job.state)) {
      return job;
    }
    HVD_TRY(look_after(place, job));
    watch.wait(is_slurm_s ? Duration(kAskSlurmAgain) : Duration(kLookAgain));
  }
}

Result<int> list_jobs(ServicePlace& place, const ServiceOptions& options) {
  // In this order, so that a job that ends meanwhile is in one of them at least.
  HVD_TRY_ASSIGN(std::vector<JobRecord> active, place.store.active_jobs());
  HVD_TRY_ASSIGN(std::vector<JobRecord> jobs, place.store.ended_jobs(options.all ? 0 : kNewestEnded));
  const std::size_t ended = jobs.size();
  std::copy_if(active.begin(), active.end(), std::back_inserter(jobs), [ended, &jobs](const JobRecord& job) {
    const auto end = jobs.begin() + static_cast<std::ptrdiff_t>(ended);
    return std::none_of(jobs.begin(), end, [&job](const JobRecord& other) { return other.id == job.id; });
  });
  std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) { return a.id < b.id; });
  HVD_TRY(add_engine_jobs(place, options.all, jobs));
  if (options.json) {
    Json all = Json::array();
    for (const JobRecord& job : jobs) {
      all.push_back(Json::parse(record_json(job), nullptr, false));
    }
    return print_json(all.dump(2, ' ', false, Json::error_handler_t::replace), "");
  }
  std::cout << table_of(jobs);
  HVD_TRY_ASSIGN(const std::int64_t all_ended, place.store.count_ended());
  if (const auto more = all_ended - static_cast<std::int64_t>(ended); more > 0) {
    std::cerr << "hvdrun: " << more << " more have ended before; hvdrun ps --all shows them\n";
  }
  return 0;
}

Result<int> show_job(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord job, place.job(options.job));
  if (options.json || !options.field.empty()) {
    return print_json(record_json(job), options.field);
  }
  std::cout << table_of({job});
  if (job.state == ExecutionState::kQueued && job.engine_job.empty()) {
    HVD_TRY_ASSIGN(const std::vector<std::string> lines, describe_waiting(place, job));
    std::cout << "\n";
    for (const std::string& line : lines) {
      std::cout << line << "\n";
    }
  }
  if (job.state == ExecutionState::kQueued && !job.engine_job.empty()) {
    const std::string reason = slurm_wait_reason(job);
    std::cout << (reason.empty() ? "" : "\n" + reason + "\n");
  }
  if (!job.error.code.empty()) {
    std::cout << "\n" << job.error.code << ": " << job.error.message << "\n" << job.error.details;
  }
  return 0;
}

namespace {

// Waits for the job's end, and tells of it; returns hvdrun's exit code for it.
Result<int> wait_for_end(ServicePlace& place, const JobRecord& begun) {
  HVD_TRY_ASSIGN(FolderWatch watch, FolderWatch::on(place.dir.locks()));
  auto state = ExecutionState::kQueued;
  std::cerr << "hvdrun: job " << begun.name << " was submitted at " << utc_text(begun.created_ms) << "\n";
  const auto tell = [&](const JobRecord& job) -> Result<void> {
    if (job.state != state) {
      state = job.state;
      std::cerr << "hvdrun: job " << job.name << " " << change_of(job) << " at " << utc_text(job.changed_ms) << "\n";
      if (job.state == ExecutionState::kFailed && !was_stopped(job) && !job.error.message.empty()) {
        std::cerr << "hvdrun:   " << job.error.message << "\n";
        const std::string end = last_line(job.error.details);
        std::cerr << end << (end.empty() ? "" : "\n");
      }
      if (job.state == ExecutionState::kQueued && job.engine_job.empty()) {  // again
        HVD_TRY_ASSIGN(const std::vector<std::string> lines, describe_waiting(place, job));
        for (const std::string& line : lines) {
          std::cerr << "hvdrun:   " << line << "\n";
        }
      }
    }
    return {};
  };
  HVD_TRY_ASSIGN(const JobRecord job, await_end(place, begun, watch, tell));
  return job.status;
}

}  // namespace

Result<int> wait_for_jobs(ServicePlace& place, const ServiceOptions& options) {
  std::vector<JobRecord> jobs;
  for (const std::string& reference : options.jobs) {  // a wrong name is told at once
    HVD_TRY_ASSIGN(JobRecord job, place.job(reference));
    jobs.push_back(std::move(job));
  }
  int code = 0;
  for (const JobRecord& job : jobs) {
    HVD_TRY_ASSIGN(const int its, wait_for_end(place, job));
    code = code == 0 ? its : code;
  }
  return code;
}

Result<int> stop_job(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord job, place.job(options.job));
  HVD_TRY_ASSIGN(FolderWatch watch, FolderWatch::on(place.dir.locks()));
  HVD_TRY(end_job(place, job));
  if (!options.no_wait) {
    HVD_TRY(await_end(place, job, watch, [](const JobRecord&) { return Result<void>(); }));
  }
  return 0;
}

Result<int> remove_job(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY(stop_job(place, options));
  HVD_TRY_ASSIGN(const JobRecord found, place.job(options.job));
  // The folder of a job that Slurm still has must stay: so it is not enough what was known last.
  HVD_TRY_ASSIGN(const JobRecord job, place.again(found));
  HVD_TRY(job.engine_job.empty() ? place.store.remove_job(job.id) : place.engine_jobs.remove(job));
  HVD_TRY(place.dir.remove_run(job.uuid));
  return 0;
}

Result<int> list_nodes(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord job, place.job(options.job));
  if (options.json) {
    return print_json(record_json(job), "nodes");
  }
  const auto cluster = place.store.clusters().find(job.cluster);
  std::vector<std::vector<std::string>> rows;
  for (const JobNode& node : job.nodes) {
    int port = 22;
    for (const HostSpec& host : cluster.ok() ? cluster.value().cluster.hosts : HostList()) {
      if (host.name == node.name) {
        port = host.port != 0 ? host.port : cluster.value().cluster.defaults.ssh_port.value_or(port);
      }
    }
    rows.push_back({node.name, node.address, std::to_string(port)});
  }
  std::cout << listing({{"ID"}, {"IP"}, {"SSH Port", true}}, rows);
  return 0;
}

Result<int> run_on_node(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord job, place.job(options.job));
  if (job.nodes.empty()) {
    return Error(Code::kInvalid, "job " + job.name + " has no nodes yet");
  }
  if (!job.engine_job.empty()) {
    return Error(Code::kInvalid,
                 "job " + job.name + " is Slurm's, and exec is for the service's own clusters; try: srun " +
                     "--overlap --jobid=" + engine_number(job) + " --nodelist=" + job.nodes.front().name + " COMMAND");
  }
  const std::string wanted = options.node.empty() ? job.nodes.front().name : options.node;
  HVD_TRY_ASSIGN(const ClusterRecord cluster, place.store.clusters().find(job.cluster));
  HostList hosts;
  for (const HostSpec& host : cluster.cluster.hosts) {
    const bool is_of_job =
        std::any_of(job.nodes.begin(), job.nodes.end(), [&](const JobNode& n) { return n.name == host.name; });
    if (host.name == wanted && is_of_job) {
      hosts.push_back(host);
    }
  }
  if (hosts.empty()) {
    return Error(Code::kNotFound, "job " + job.name + " has no node '" + shown_text(wanted) + "'; hvdrun nodes " +
                                      job.name + " shows those that it has");
  }
  HVD_TRY_ASSIGN(const std::string cwd, working_directory(own_environment()));
  // Connect as the job does: its ticket exists for as long as the job has not ended.
  Flags flags;
  if (const auto ticket = read_ticket(place.dir.ticket_of(job.uuid)); ticket.ok()) {
    HVD_TRY_ASSIGN(const Flags meant, parse_submit_words(ticket.value().words));
    // Relative paths in its words begin there. Where the folder has gone, ssh says which of them lead nowhere.
    static_cast<void>(::chdir(ticket.value().cwd.c_str()) == 0);
    flags.rsh = meant.rsh;
    flags.ssh_config = meant.ssh_config;
    flags.ssh_identity_file = meant.ssh_identity_file;
    flags.ssh_port = meant.ssh_port;
  }
  hosts.front().slots = 1;
  hosts.front().gpus.clear();
  HVD_TRY(apply_cluster(cluster.cluster, hosts, flags));
  flags.command = options.command;
  flags.np = 1;
  flags.gpus = "none";
  flags.no_tags = true;
  flags.quiet = true;
  CliOptions run;
  HVD_TRY_ASSIGN(run.job, make_job(flags));
  run.job.cwd = cwd;
  run.job.tells_place = false;
  return run_job(run);
}

}  // namespace hvd::cli
