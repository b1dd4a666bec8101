#include "launcher/run/start_plan.h"

#include <algorithm>
#include <utility>

#include "launcher/placement/cpu_binding.h"
#include "launcher/placement/gpu_pinning.h"

namespace hvd::launch {
namespace {

std::pair<std::string, std::string> split_entry(const std::string& entry) {
  const auto equals = entry.find('=');
  return {entry.substr(0, equals), equals == std::string::npos ? "" : entry.substr(equals + 1)};
}

bool has_value(const JobSpec& spec, const std::string& name) {
  const auto named = [&name](const auto& pair) { return pair.first == name; };
  const auto entry_named = [&name](const std::string& entry) { return split_entry(entry).first == name; };
  return std::any_of(spec.user_env.begin(), spec.user_env.end(), named) ||
         std::any_of(spec.environment.begin(), spec.environment.end(), entry_named);
}

// The NUMA node of each local rank's GPU; -1 where none is known.
std::vector<std::int32_t> near_of_ranks(GpuMode mode, const NodePlan& node, const ReadyMessage& ready,
                                        const std::vector<std::string>& gpus) {
  std::vector<std::int32_t> near;
  for (std::size_t rank = 0; mode != GpuMode::kNone && !gpus.empty() && rank < node.ranks.size(); ++rank) {
    const auto gpu = std::find(ready.gpus.begin(), ready.gpus.end(), gpus[rank % gpus.size()]) - ready.gpus.begin();
    near.push_back(static_cast<std::size_t>(gpu) < ready.near.size() ? ready.near[static_cast<std::size_t>(gpu)] : -1);
  }
  return near;
}

}  // namespace

std::optional<StartFailedMessage> find_missing_gpu(const Placement& placement, const std::vector<NodeView>& views) {
  for (const NodePlan& node : placement.nodes) {
    const auto gpus = gpus_of_job(node, views[static_cast<std::size_t>(node.index)].ready.gpus);
    if (!gpus.ok()) {
      return StartFailedMessage{node.ranks.front().rank, gpus.error()};
    }
  }
  return std::nullopt;
}

std::vector<StartMessage> make_start_messages(const JobSpec& spec, const Placement& placement,
                                              const std::vector<NodeView>& views, const std::string& job_id,
                                              const std::string& token) {
  const std::vector<std::string> addresses = data_addresses(views);
  JobFacts job;
  job.job_id = job_id;
  job.agent_token = token;
  job.master_address = addresses.front();
  job.master_port = views.front().ready.reserved_port;
  job.omp_threads_set = has_value(spec, "OMP_NUM_THREADS");

  std::vector<std::string> unset;
  EnvList exported;
  for (const std::string& entry : spec.environment) {
    const auto pair = split_entry(entry);
    if (is_outer_launcher_variable(pair.first)) {
      unset.push_back(pair.first);
    } else if (!is_host_bound_variable(pair.first)) {
      exported.push_back(pair);
    }
  }
  std::vector<StartMessage> messages;
  for (const NodePlan& node : placement.nodes) {
    const auto index = static_cast<std::size_t>(node.index);
    const NodeView& view = views[index];
    StartMessage start;
    start.cwd = spec.cwd;
    start.argv = spec.argv;
    start.unset = unset;
    if (!view.opened.is_local) {
      start.env = exported;  // a local agent has them already, host-bound ones too
    }
    start.last = spec.user_env;
    const NodeFacts facts{addresses[index], view.ready.socket_path};
    const std::vector<std::string> gpus = gpus_of_job(node, view.ready.gpus).value();
    const std::vector<RankCpus> bound =
        bind_ranks(spec.bind, view.ready.cores, node.local_size(), near_of_ranks(spec.gpus, node, view.ready, gpus));
    for (const RankPlan& rank : node.ranks) {
      const RankCpus& own = bound[static_cast<std::size_t>(rank.local_rank)];
      EnvList env = rank_env(placement, node, rank, facts, job, own.threads);
      const EnvList pinned = gpu_env(spec.gpus, gpus, rank.local_rank);
      env.insert(env.end(), pinned.begin(), pinned.end());
      start.ranks.push_back(StartMessage::Rank{rank.rank, std::move(env), own.cpus});
    }
    messages.push_back(std::move(start));
  }
  return messages;
}

std::vector<std::string> start_warnings(const JobSpec& spec, const Placement& placement,
                                        const std::vector<NodeView>& views) {
  std::vector<std::string> warnings;
  for (const NodePlan& node : placement.nodes) {
    const auto gpus = gpus_of_job(node, views[static_cast<std::size_t>(node.index)].ready.gpus).value();
    for (const std::string& text :
         {gpu_warning(spec.gpus, node, gpus),
          bind_warning(spec.bind, node, views[static_cast<std::size_t>(node.index)].ready.cores)}) {
      if (!text.empty()) {
        warnings.push_back(text);
      }
    }
  }
  return warnings;
}

}  // namespace hvd::launch
