#include "launcher/steps/node_steps.h"

#include <algorithm>
#include <chrono>

namespace hvd::launch {
namespace {

// These limit the removal of a run's folders, for which the user has to wait: reaching the nodes, and removing a
// million files.
constexpr Duration kCleanUpStartTime = std::chrono::seconds(10);
constexpr Duration kCleanUpTime = std::chrono::seconds(60);

// What every step on nodes needs: who runs there, with which variables, and how the nodes are reached.
JobSpec on_nodes(const JobSpec& job, int nodes) {
  JobSpec spec;
  spec.size = nodes;
  spec.argv = job.argv;
  spec.environment = job.environment;
  spec.open_files = job.open_files;
  spec.user_env = job.user_env;
  spec.gpus = GpuMode::kNone;
  spec.tells_place = false;
  spec.start_timeout = job.start_timeout;
  spec.grace = job.grace;
  spec.reconnect_timeout = job.reconnect_timeout;
  spec.heartbeat = job.heartbeat;
  spec.stall_after = Duration::zero();  // no node waits for another one here
  spec.hidden = job.hidden;
  spec.verbose = job.verbose;
  spec.ssh_port = job.ssh_port;
  spec.ssh_identity_file = job.ssh_identity_file;
  spec.ssh_config_file = job.ssh_config_file;
  spec.fanout = job.fanout;
  spec.rsh_command = job.rsh_command;
  spec.agent_path = job.agent_path;
  spec.launcher = job.launcher == LauncherKind::kMpi ? LauncherKind::kOwn : job.launcher;
  spec.engine_job = job.engine_job;
  spec.node_gpus = job.node_gpus;  // of a step of Slurm without them no agent would see the node's GPUs
  return spec;
}

}  // namespace

JobSpec preparation_settings(const JobSpec& job, const JobRun& run, int nodes) {
  JobSpec spec = on_nodes(job, nodes);
  spec.cwd = run.starts_in_folder() ? job.cwd : "/";
  spec.sync_dir = job.sync_dir;  // what the nodes get of it is the whole job's (JobStep::tree)
  spec.interfaces = job.interfaces;
  spec.timeout = job.timeout;
  spec.timeout_setting = job.timeout_setting;
  spec.live_dir = job.live_dir;
  spec.name = job.name;
  spec.uuid = job.uuid;
  spec.tags = job.tags;
  spec.json_events = job.json_events;
  spec.timestamps = job.timestamps;
  spec.color = job.color;
  spec.live = job.live;
  spec.shows_ranks = job.shows_ranks;
  spec.quiet = job.quiet;
  spec.metrics_file = job.metrics_file;
  spec.metrics_place = job.metrics_place;
  spec.requeued_job = job.requeued_job;
  return spec;
}

JobSpec clean_up_settings(const JobSpec& job, int nodes) {
  JobSpec spec = on_nodes(job, nodes);
  spec.cwd = "/";
  spec.start_timeout = std::min(spec.start_timeout, kCleanUpStartTime);
  spec.timeout = kCleanUpTime;
  spec.timeout_setting = "the time for cleaning up";
  spec.quiet = true;
  return spec;
}

}  // namespace hvd::launch
