// Slurm, within salloc and sbatch. A step of srun starts its agents (engines/slurm.h), so the hosts need not be
// reached.
#include <algorithm>
#include <numeric>

#include "launcher/allocations/node_words.h"
#include "launcher/job/host_list.h"
#include "launcher/process/spawn.h"
#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Returns true where the user has said how many tasks the job has. Slurm sets SLURM_TASKS_PER_NODE for all jobs, and it
// counts the CPUs where nobody has: with --exclusive a node of 128 cores and 8 GPUs would get 128 ranks.
bool are_tasks_said(const std::vector<std::string>& environment) {
  return !value_in(environment, "SLURM_NTASKS").empty() || !value_in(environment, "SLURM_NPROCS").empty();
}

// Returns true where these counts are as many tasks as the user has asked for, or nothing says how many that is.
bool are_all_tasks(const std::vector<std::string>& environment, const std::vector<int>& each) {
  const std::string tasks = value_in(environment, "SLURM_NTASKS");
  const auto wanted = parse_number<int>(tasks.empty() ? value_in(environment, "SLURM_NPROCS") : tasks, 1);
  return !wanted || std::accumulate(each.begin(), each.end(), std::int64_t{0}) == *wanted;
}

// A variable's count for each node; empty where it is not set.
Result<std::vector<int>> counts_of(const std::vector<std::string>& environment, const char* name, std::size_t nodes) {
  const std::string text = value_in(environment, name);
  if (text.empty()) {
    return std::vector<int>();
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
  return each;
}

bool are_several(const std::vector<int>& each) {
  return std::any_of(each.begin(), each.end(), [](int count) { return count > 1; });
}

// How many ranks each node gets by Slurm's own words; empty: it has none that say more than one a node. `variable` is
// the one that says it.
Result<std::vector<int>> said_counts(const std::vector<std::string>& environment, std::size_t nodes,
                                     std::string& variable) {
  HVD_TRY_ASSIGN(std::vector<int> most, counts_of(environment, "SLURM_NTASKS_PER_NODE", nodes));
  const bool is_said = are_several(most);
  if (!is_said || !are_all_tasks(environment, most)) {
    // Beside --ntasks the tasks of --ntasks-per-node are the most that a node gets, and Slurm has counted them.
    auto counted_by_slurm = are_tasks_said(environment) ? counts_of(environment, "SLURM_TASKS_PER_NODE", nodes)
                                                        : Result<std::vector<int>>(std::vector<int>());
    if (!counted_by_slurm.ok() && !is_said) {
      return counted_by_slurm.error();
    }
    std::vector<int> each = counted_by_slurm.ok() ? std::move(counted_by_slurm).value() : std::vector<int>();
    if (is_said ? !each.empty() && are_all_tasks(environment, each) : are_several(each)) {
      variable = "SLURM_TASKS_PER_NODE";
      return each;
    }
  }
  if (!is_said) {
    return std::vector<int>();
  }
  variable = "SLURM_NTASKS_PER_NODE";
  return most;
}

// Returns true where srun has started this program several times. It starts the shell of `srun --pty` several times
// too, and only the first one is the user's: hvdrun in it is there once.
bool is_started_often(const Surroundings& here) {
  const auto tasks = parse_number<int>(value_in(here.environment, contract::kSlurmStepSize), 0);
  const bool is_in_shell = !value_in(here.environment, "SLURM_PTY_PORT").empty() &&
                           value_in(here.environment, "SLURM_PROCID") == "0" && !here.is_task;
  return tasks.value_or(0) > 1 && !is_in_shell;
}

// GPUs are a number of them as Slurm's variables have it: "8", "a100:8".
struct Gpus {
  std::string type;  // "a100:"; may be empty
  int count = 0;     // 0: none said, or of several types
};

Gpus gpus_in(const std::vector<std::string>& environment, const char* name) {
  const std::string text = value_in(environment, name);
  if (text.find(',') != std::string::npos) {
    return {};
  }
  const std::size_t begin = text.rfind(':') + 1;  // 0 where there is no colon
  return {text.substr(0, begin), parse_number<int>(std::string_view(text).substr(begin), 0, 1 << 14).value_or(0)};
}

// Says which GPUs the job has, where a step does not get them all by itself: with --gpus-per-task one task on each
// node, which is our agent, gets the GPUs of one task.
void find_gpus(const std::vector<std::string>& environment, const std::vector<int>& tasks, Allocation& found) {
  found.gpus = gpus_in(environment, "SLURM_GPUS").count;
  const Gpus each = gpus_in(environment, "SLURM_GPUS_PER_TASK");
  if (each.count == 0 || tasks.empty()) {
    return;
  }
  found.gpus = each.count * std::accumulate(tasks.begin(), tasks.end(), 0);
  if (std::equal(tasks.begin() + 1, tasks.end(), tasks.begin())) {  // a step asks for as many on each node
    found.node_gpus = each.type + std::to_string(each.count * tasks.front());
  }
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
  if (is_started_often(here)) {
    return half_known(found, "srun has started hvdrun " + value_in(environment, contract::kSlurmStepSize) +
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
  find_gpus(environment, said, found);
  return std::optional(std::move(found));
}

}  // namespace hvd::launch
