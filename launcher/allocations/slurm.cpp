// Slurm, within salloc and sbatch. A step of srun starts its agents (engines/slurm.h), so the hosts need not be
// reached.
#include <algorithm>

#include "launcher/allocations/node_words.h"
#include "launcher/job/host_list.h"
#include "launcher/process/spawn.h"
#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// How many ranks each node gets by Slurm's own words; empty: it has none that say more than one a node.
Result<std::vector<int>> said_counts(const std::vector<std::string>& environment, std::size_t nodes,
                                     std::string& variable) {
  for (const char* name : {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::string text = value_in(environment, name);
    if (text.empty()) {
      continue;
    }
    auto counts = expand_task_counts(text);
    if (!counts.ok()) {
      return counts.error().with_context(name);
    }
    std::vector<int> each = std::move(counts).value();
    if (each.size() == 1) {
      each.assign(nodes, each.front());
    }
    if (each.size() != nodes) {
      return Error(Code::kInvalid, std::string(name) + " is '" + text + "', which speaks of " +
                                       counted(each.size(), "node") + " where the job has " + std::to_string(nodes));
    }
    if (std::any_of(each.begin(), each.end(), [](int count) { return count > 1; })) {
      variable = name;
      return each;
    }
  }
  return std::vector<int>();
}

}  // namespace

Result<std::vector<int>> expand_task_counts(std::string_view text) {
  constexpr std::size_t kMostNodes = 1U << 20U;
  const Error refused(Code::kInvalid, "'" + std::string(text) + "': expected counts as in 2(x3),1");
  std::vector<int> counts;
  while (true) {
    const std::string_view entry = text.substr(0, text.find(','));
    const auto open = entry.find("(x");
    const auto count = parse_number<int>(entry.substr(0, open), 1);
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      if (!entry.ends_with(')')) {
        return refused;
      }
      times = parse_number<int>(entry.substr(open + 2, entry.size() - open - 3), 1);
    }
    if (!count || !times || counts.size() + static_cast<std::size_t>(*times) > kMostNodes) {
      return refused;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
    if (entry.size() == text.size()) {
      return counts;
    }
    text.remove_prefix(entry.size() + 1);
  }
}

FoundAllocation find_slurm(const Surroundings& here) {
  const std::vector<std::string>& environment = here.environment;
  Allocation found;
  found.engine = "Slurm";
  found.job = value_in(environment, "SLURM_JOB_ID");
  if (found.job.empty()) {
    return std::optional<Allocation>();
  }
  if (const std::string parts = value_in(environment, "SLURM_HET_SIZE"); !parts.empty() && parts != "1") {
    return half_known(found, "it is heterogeneous (SLURM_HET_SIZE=" + parts + "), which hvdrun does not support");
  }
  if (const auto tasks = parse_number<int>(value_in(environment, contract::kSlurmStepSize), 0); tasks && *tasks > 1) {
    return half_known(found, "srun has started hvdrun " + std::to_string(*tasks) +
                                 " times; start it once, without srun, and it starts the ranks");
  }
  const std::string nodes = value_in(environment, "SLURM_JOB_NODELIST");
  if (nodes.empty()) {
    return half_known(found, "SLURM_JOB_NODELIST, which names its nodes, is not set");
  }
  auto hosts = parse_host_list(nodes);
  if (!hosts.ok()) {
    return half_known(found, "SLURM_JOB_NODELIST is '" + nodes + "': " + hosts.error().message());
  }
  found.hosts = std::move(hosts).value();
  const std::string count = value_in(environment, "SLURM_JOB_NUM_NODES");
  if (!count.empty() && count != std::to_string(found.hosts.size())) {
    return half_known(found, "SLURM_JOB_NODELIST names " + counted(found.hosts.size(), "node") +
                                 " where SLURM_JOB_NUM_NODES says " + count);
  }
  auto counts = said_counts(environment, found.hosts.size(), found.slots_from);
  if (!counts.ok()) {
    return half_known(found, counts.error().message());
  }
  const std::vector<int>& said = counts.value();
  for (std::size_t index = 0; index < said.size(); ++index) {
    found.hosts[index].slots = said[index];
  }
  if (said.empty() && here.size > 0) {
    spread_slots(here.size, found.hosts);
    found.slots_from = "-np";
  }
  found.slots_are_gpus = said.empty() && here.size == 0;
  return std::optional(std::move(found));
}

}  // namespace hvd::launch
