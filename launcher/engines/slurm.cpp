#include "launcher/engines/slurm.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "launcher/engines/slurm_notice.h"
#include "launcher/job/host_list.h"
#include "launcher/process/spawn.h"
#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr const char* kSrun = "srun";
// srun says so of --cpu-bind=none where no processes are bound anyway.
constexpr std::string_view kNoBinding = "lacks support for cpu binding";

// These variables stand for options of srun, and would be taken beside or instead of those given here: with
// SLURM_NTASKS of the job, srun starts that many agents; SRUN_CPUS_PER_TASK gives the agent of a node the CPUs of one
// task. The job's number and nodes are not among them.
constexpr std::string_view kInputVariables =
    "SLURM_NPROCS SLURM_TASKS_PER_NODE SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_THREADS_PER_CORE "
    "SLURM_TRES_PER_TASK SLURM_GPUS_PER_TASK SLURM_DISTRIBUTION SLURM_MPI_TYPE SLURM_EXPORT_ENV "
    "SRUN_EXPORT_ENV SLURM_LABELIO SLURM_UNBUFFEREDIO SLURM_KILL_BAD_EXIT SLURM_EXACT SLURM_EXCLUSIVE "
    "SLURM_HINT SLURM_WAIT";
constexpr std::array<std::string_view, 4> kInputPrefixes = {"SLURM_NTASKS", "SLURM_CPU_BIND", "SLURM_GPU_BIND",
                                                            "SLURM_STD"};

bool is_input_variable(std::string_view name) {
  return has_word(kInputVariables, name) ||
         std::any_of(kInputPrefixes.begin(), kInputPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

StepKind slurm_step() {
  StepKind kind;
  kind.engine = "Slurm";
  kind.nodes_from = "SLURM_JOB_NODELIST";
  kind.command = srun_command;
  kind.end_reason = slurm_end_reason;
  kind.told_to_end = "its processes were told to end, as by scancel or a time limit; scontrol show job says more";
  kind.gpu_advice = "it gives all where the job asks for them by --gpus-per-node";
  kind.end_text = slurm_end_text;
  return kind;
}

EngineCommand srun_command(const Placement& placement, const StepOptions& options, const CallPlace& place,
                           const CallKey& key) {
  const std::string nodes = std::to_string(placement.nodes.size());
  std::string names;
  std::string lines;
  for (const NodePlan& node : placement.nodes) {
    add_to_list(names, node.host.name, ",");
    lines += node.host.name + "\n";
  }
  EngineCommand command;
  if (names.size() > kLongestHosts) {
    names = kHostsFile;  // srun takes a value with a slash for a file
    command.hosts = std::move(lines);
  }
  command.name = kSrun;
  command.open_files = options.open_files;
  // --overlap: another step may use the nodes too. --no-kill, --kill-on-bad-exit=0: hvdrun alone judges what a failure
  // means. Nothing is bound: a step sees all that the job has on the node, and the agent divides it. The environment
  // travels, as Slurm's users expect.
  command.argv = {
      kSrun,          "--nodes=" + nodes, "--ntasks=" + nodes,    "--ntasks-per-node=1", "--nodelist=" + names,
      "--overlap",    "--no-kill",        "--kill-on-bad-exit=0", "--mpi=none",          "--cpu-bind=none",
      "--export=ALL", "--input=all",      "--job-name=hvdrun"};
  if (!options.node_gpus.empty()) {
    command.argv.push_back("--gpus-per-node=" + options.node_gpus);
  }
  const std::vector<std::string> program = call_words(options.agent_path, "slurm", place);
  command.argv.insert(command.argv.end(), program.begin(), program.end());
  for (const std::string& entry : options.environment) {
    if (!is_input_variable(std::string_view(entry).substr(0, entry.find('=')))) {
      command.environment.push_back(entry);
    }
  }
  command.input = call_key_text(key) + "\n";
  command.noise = kNoBinding;
  command.failure_in = srun_failure;
  return command;
}

EngineFailure srun_failure(std::string_view output) {
  struct Sign {
    std::string_view words;
    Code code;
    const char* advice;
  };
  static constexpr const char* kStale =
      "the job that SLURM_JOB_ID names is over: this is a stale environment; use a new shell, or --engine none";
  static constexpr std::array<Sign, 8> kSigns = {{
      {"Invalid job id", Code::kInvalid, kStale},
      {"Job has expired", Code::kInvalid, kStale},
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

EndReason slurm_end_reason(std::string_view line) {
  const auto has = [line](std::string_view words) { return line.find(words) != std::string_view::npos; };
  // Slurm's two ways to watch the memory: its own count of a step's, and the kernel's limit.
  if (has("memory limit") || has("oom_kill") || has("oom-kill") || has("OOM Killed")) {
    return {std::string(line) + "; ask Slurm for more memory, as in --mem=64G", true};
  }
  // Every node of the step says this line, also those that had no part in it.
  const bool is_step_end = has("*** STEP ") && (has(" CANCELLED AT ") || has(" FAILED "));
  const bool is_node = has("Node failure on ");
  return is_step_end || is_node
             ? EndReason{std::string(line) + "; scontrol show job says more", is_node || has(" DUE TO ")}
             : EndReason{};
}

}  // namespace hvd::launch
