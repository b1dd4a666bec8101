#include "launcher/engines/slurm.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "launcher/job/host_list.h"
#include "launcher/process/spawn.h"
#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr const char* kName = "srun";
constexpr const char* kOtherwise = "; -H names hosts, and --launcher ssh leaves Slurm aside";

// These variables stand for options of srun, and would be taken beside or instead of those given here: with
// SLURM_NTASKS of the job, srun starts that many agents. The job's number and nodes are not among them.
constexpr std::array<std::string_view, 20> kInputVariables = {
    "SLURM_NTASKS",         "SLURM_NPROCS",        "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK",
    "SLURM_GPUS_PER_TASK",  "SLURM_DISTRIBUTION",  "SLURM_GPU_BIND",
    "SLURM_MPI_TYPE",       "SLURM_EXPORT_ENV",    "SLURM_LABELIO",
    "SLURM_UNBUFFEREDIO",   "SLURM_STDINMODE",     "SLURM_STDOUTMODE",
    "SLURM_STDERRMODE",     "SLURM_KILL_BAD_EXIT", "SLURM_EXACT",
    "SLURM_HINT",           "SLURM_WAIT"};

bool is_input_variable(std::string_view name) {
  return name.starts_with("SLURM_CPU_BIND") ||
         std::find(kInputVariables.begin(), kInputVariables.end(), name) != kInputVariables.end();
}

Error half_known(const std::string& job, const std::string& what) {
  return Error(Code::kInvalid, "this is Slurm's job " + job + ", but " + what + kOtherwise);
}

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

Result<std::optional<SlurmAllocation>> slurm_allocation(const std::vector<std::string>& environment, int size) {
  SlurmAllocation found;
  found.job = value_in(environment, "SLURM_JOB_ID");
  if (found.job.empty()) {
    return std::optional<SlurmAllocation>();
  }
  if (const std::string parts = value_in(environment, "SLURM_HET_SIZE"); !parts.empty() && parts != "1") {
    return half_known(found.job, "it is heterogeneous (SLURM_HET_SIZE=" + parts + "), which hvdrun does not support");
  }
  if (const auto tasks = parse_number<int>(value_in(environment, contract::kSlurmStepSize), 0); tasks && *tasks > 1) {
    return half_known(found.job, "srun has started hvdrun " + std::to_string(*tasks) +
                                     " times; start it once, without srun, and it starts the ranks");
  }
  const std::string nodes = value_in(environment, "SLURM_JOB_NODELIST");
  if (nodes.empty()) {
    return half_known(found.job, "SLURM_JOB_NODELIST, which names its nodes, is not set");
  }
  auto hosts = parse_host_list(nodes);
  if (!hosts.ok()) {
    return half_known(found.job, "SLURM_JOB_NODELIST is '" + nodes + "': " + hosts.error().message());
  }
  found.hosts = std::move(hosts).value();
  const std::string count = value_in(environment, "SLURM_JOB_NUM_NODES");
  if (!count.empty() && count != std::to_string(found.hosts.size())) {
    return half_known(found.job, "SLURM_JOB_NODELIST names " + counted(found.hosts.size(), "node") +
                                     " where SLURM_JOB_NUM_NODES says " + count);
  }
  auto counts = said_counts(environment, found.hosts.size(), found.slots_from);
  if (!counts.ok()) {
    return half_known(found.job, counts.error().message());
  }
  const std::vector<int>& said = counts.value();
  for (std::size_t index = 0; index < said.size(); ++index) {
    found.hosts[index].slots = said[index];
  }
  if (said.empty() && size > 0) {
    spread_slots(size, found.hosts);
    found.slots_from = "-np";
  }
  found.slots_are_gpus = said.empty() && size == 0;
  return std::optional(std::move(found));
}

EngineCommand srun_command(const Placement& placement, const SrunOptions& options, const CallPlace& place,
                           const CallKey& key) {
  const std::string nodes = std::to_string(placement.nodes.size());
  std::string names;
  for (const NodePlan& node : placement.nodes) {
    add_to_list(names, node.host.name, ",");
  }
  EngineCommand command;
  command.name = kName;
  command.open_files = options.open_files;
  // --overlap: another step may use the nodes too. --no-kill, --kill-on-bad-exit=0: hvdrun alone judges what a failure
  // means. Nothing is bound: a step sees all that the job has on the node, and the agent divides it. The environment
  // travels, as Slurm's users expect.
  command.argv = {
      kName,          "--nodes=" + nodes, "--ntasks=" + nodes,    "--ntasks-per-node=1", "--nodelist=" + names,
      "--overlap",    "--no-kill",        "--kill-on-bad-exit=0", "--mpi=none",          "--cpu-bind=none",
      "--export=ALL", "--input=all",      "--job-name=hvdrun"};
  const std::vector<std::string> program = call_words(options.agent_path, "slurm", place);
  command.argv.insert(command.argv.end(), program.begin(), program.end());
  for (const std::string& entry : options.environment) {
    if (!is_input_variable(std::string_view(entry).substr(0, entry.find('=')))) {
      command.environment.push_back(entry);
    }
  }
  command.input = call_key_text(key) + "\n";
  command.failure_in = srun_failure;
  return command;
}

EngineFailure srun_failure(std::string_view output) {
  struct Sign {
    std::string_view words;
    Code code;
    const char* advice;
  };
  static constexpr std::array<Sign, 8> kSigns = {{
      {"Invalid job id", Code::kInvalid, "the job that SLURM_JOB_ID names is over: this is a stale environment"},
      {"Job has expired", Code::kInvalid, "the job that SLURM_JOB_ID names is over: this is a stale environment"},
      {"Access/permission denied", Code::kInvalid, "is the job that SLURM_JOB_ID names another user's?"},
      {"not in this job", Code::kInvalid, "is SLURM_JOB_NODELIST that of the job?"},
      {"Required node not available", Code::kUnreachable, "a node of the job is down: see scontrol show job"},
      {"No such file or directory", Code::kSystem,
       "hvdrun-agent must be at the same path on every node: install hvdrun there, or share the folder"},
      {"Permission denied", Code::kSystem, "hvdrun-agent must be executable on every node"},
      {"cannot call hvdrun back", Code::kUnreachable,
       "compute nodes must reach the host where hvdrun runs: run it in the batch script"},
  }};
  const auto found = std::find_if(kSigns.begin(), kSigns.end(), [output](const Sign& sign) {
    return output.find(sign.words) != std::string_view::npos;
  });
  return found == kSigns.end() ? EngineFailure{} : EngineFailure{found->code, found->advice};
}

}  // namespace hvd::launch
