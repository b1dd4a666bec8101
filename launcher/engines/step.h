// A step is how a batch system starts the agents of a job: one command of its own, which runs one agent on each of the
// job's nodes (srun, jsrun). All that differs between such commands is a value, StepKind (slurm.h and jsrun.h make
// one); step_gang.h starts any of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/placement/placement.h"
#include "launcher/wire/engine_call.h"

namespace hvd::launch {

struct StepOptions {
  std::string agent_path;                // the same on every node
  std::vector<std::string> environment;  // of hvdrun
  std::uint64_t open_files = 0;          // of hvdrun, as it was started
  std::string node_gpus;                 // what it asks for on each node, as in "a100:8"; empty: what it gets unasked
};

// EndReason is what a batch system says of why it ends the agents of a step.
struct EndReason {
  std::string text;          // its line, with what to try; empty: it says nothing of that
  bool names_cause = false;  // otherwise it says only that the step ends, and another node's line may say why

  // Whether it is worth more than what was said before. Of two that say as much the first counts.
  [[nodiscard]] bool says_more_than(const EndReason& earlier) const {
    return !text.empty() && (earlier.text.empty() || (names_cause && !earlier.names_cause));
  }
  friend bool operator==(const EndReason&, const EndReason&) = default;
};

struct StepKind {
  std::string engine;      // "Slurm": in messages
  std::string nodes_from;  // "SLURM_JOB_NODELIST", which names the job's nodes
  // The command cannot be told on which of the job's nodes it is to start the agents, nor by which names.
  bool chooses_nodes = false;
  // One agent on each node of the placement; they call at the place.
  EngineCommand (*command)(const Placement&, const StepOptions&, const CallPlace&, const CallKey&) = nullptr;
  // Reads a line of the command's. Null: no line ever says why the batch system ends the agents.
  EndReason (*end_reason)(std::string_view line) = nullptr;
  // What is said where it has ended them and no line says why; empty: nothing.
  std::string told_to_end;
  // Tells the user what to ask for where the agents count fewer GPUs than the job has; null: they always count all.
  const char* gpu_advice = nullptr;
  // Returns what the environment says of the job's time limit, at so many seconds since 1970; null: it says nothing.
  std::string (*end_text)(const std::vector<std::string>& environment, long long now_s) = nullptr;
};

}  // namespace hvd::launch
