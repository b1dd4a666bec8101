#include "launcher/engines/jsrun.h"

#include <string>

#include "launcher/placement/rank_env.h"

namespace hvd::launch {
namespace {

constexpr const char* kJsrun = "jsrun";

}  // namespace

StepKind jsrun_step() {
  StepKind kind;
  kind.engine = "LSF";
  kind.nodes_from = "LSB_DJOB_HOSTFILE";
  kind.chooses_nodes = true;
  kind.command = jsrun_command;
  return kind;
}

EngineCommand jsrun_command(const Placement& placement, const StepOptions& options, const CallPlace& place,
                            const CallKey& key) {
  EngineCommand command;
  command.name = kJsrun;
  command.open_files = options.open_files;
  // Nothing is bound: an agent sees all that the job has on the node, and divides it among its ranks.
  command.argv = {kJsrun,
                  "--nrs",
                  std::to_string(placement.nodes.size()),
                  "--rs_per_host",
                  "1",
                  "--tasks_per_rs",
                  "1",
                  "--cpu_per_rs",
                  "ALL_CPUS",
                  "--gpu_per_rs",
                  "ALL_GPUS",
                  "--bind",
                  "none"};
  const std::vector<std::string> program = call_words(options.agent_path, kJsrun, place);
  command.argv.insert(command.argv.end(), program.begin(), program.end());
  for (const std::string& entry : options.environment) {
    if (!is_outer_launcher_variable(entry.substr(0, entry.find('=')))) {
      command.environment.push_back(entry);
    }
  }
  command.environment.push_back(std::string(kCallSecretVariable) + "=" + call_key_text(key));
  command.failure_in = jsrun_failure;
  return command;
}

EngineFailure jsrun_failure(std::string_view output) {
  const bool is_call = output.find("cannot call hvdrun back") != std::string_view::npos;
  return is_call ? EngineFailure{Code::kUnreachable, "compute nodes must reach the launch host, where hvdrun runs"}
                 : EngineFailure{};
}

}  // namespace hvd::launch
