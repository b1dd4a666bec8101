#include "cli/service_place.h"

#include <algorithm>
#include <chrono>
#include <iostream>

#include "cli/options/flags.h"
#include "cli/options/job_settings.h"
#include "cli/slurm_jobs.h"
#include "launcher/service/supervisor.h"

namespace hvd::cli {
namespace {

void take(std::string& flag, const std::string& value) {
  flag = flag.empty() ? value : flag;
}

}  // namespace

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Result<ServicePlace> ServicePlace::open_at(const std::string& root, Duration patience) {
  HVD_TRY_ASSIGN(launch::StateDir dir, launch::StateDir::open(root));
  HVD_TRY_ASSIGN(launch::JobStore store, launch::JobStore::open(dir, now_ms, patience));
  HVD_TRY_ASSIGN(launch::EngineJobs engine_jobs, launch::EngineJobs::open(dir, patience));
  return ServicePlace{std::move(dir), std::move(store), std::move(engine_jobs)};
}

Result<launch::JobRecord> ServicePlace::job(const std::string& reference) {
  HVD_TRY_ASSIGN(const std::optional<launch::JobRecord> found, engine_jobs.find(reference));
  if (!found) {
    return store.job(reference);
  }
  std::vector<launch::JobRecord> jobs = {*found};
  if (const auto asked = refresh_slurm_jobs(*this, jobs); !asked.ok()) {
    std::cerr << "hvdrun: " << asked.error().message() << "; job " << found->name << " is taken as it was known last\n";
  }
  return std::move(jobs.front());
}

Result<launch::JobRecord> ServicePlace::again(const launch::JobRecord& job) {
  if (job.engine_job.empty()) {
    return store.job(job.id);
  }
  HVD_TRY_ASSIGN(const std::optional<launch::JobRecord> found, engine_jobs.again(job));
  if (!found) {
    return Error(Code::kNotFound, "the job " + job.name + " has been removed");
  }
  std::vector<launch::JobRecord> jobs = {*found};
  HVD_TRY(refresh_slurm_jobs(*this, jobs));
  return std::move(jobs.front());
}

Result<ServicePlace> ServicePlace::open() {
  HVD_TRY_ASSIGN(const std::string root, state_root());
  HVD_TRY_ASSIGN(ServicePlace place, open_at(root));
  if (const auto done = launch::recover(place.dir, place.store); !done.ok()) {
    std::cerr << "hvdrun: cannot look after the jobs that run: " << done.error().message() << "\n";
  }
  return place;
}

Result<void> apply_cluster(const launch::Cluster& cluster, const launch::HostList& nodes, Flags& flags) {
  if (!flags.hosts.empty() || !flags.hostfile.empty()) {
    return Error(Code::kInvalid,
                 "-H and --hostfile mean nothing here: the job gets nodes of the cluster '" + cluster.name + "'");
  }
  for (const launch::HostSpec& node : nodes) {
    flags.hosts += (flags.hosts.empty() ? "" : ",") + launch::host_entry(node);
  }
  flags.cluster_mounts = cluster.mounts;
  flags.cluster_file_systems = cluster.file_systems;
  take(flags.mount_root, cluster.mount_root);
  std::vector<std::string> env;
  for (const auto& [name, value] : cluster.env) {
    env.push_back(name + "=" + value);
  }
  flags.env.insert(flags.env.begin(), env.begin(), env.end());  // -x, which comes later, wins
  const launch::ClusterDefaults& defaults = cluster.defaults;
  take(flags.container, defaults.container);
  take(flags.rsh, defaults.rsh);
  take(flags.ssh_config, defaults.ssh_config);
  take(flags.ssh_identity_file, defaults.ssh_identity_file);
  flags.ssh_port = flags.ssh_port == 0 ? defaults.ssh_port.value_or(0) : flags.ssh_port;
  if (!flags.start_timeout_s) {
    flags.start_timeout_s = defaults.start_timeout_s;
  }
  if (!flags.has("reconnect-timeout")) {
    flags.reconnect_timeout_s = defaults.reconnect_timeout_s.value_or(flags.reconnect_timeout_s);
  }
  if (!flags.has("grace")) {
    flags.grace_s = defaults.grace_s.value_or(flags.grace_s);
  }
  return {};
}

}  // namespace hvd::cli
