// JobRecord: what the service knows of one job, from its submission until it is removed. Value type.
//
//   queued → running → succeeded | failed
//                 ↘ terminating → failed          (stopped by the user)
//   running → queued                              (its supervisor died before any rank was started)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/jobfile/job_run.h"
#include "runtime/base/result.h"

namespace hvd::launch {

enum class ExecutionState : std::uint8_t { kQueued, kRunning, kTerminating, kSucceeded, kFailed };
// As `show` has it: "queued", ...
const char* state_name(ExecutionState state);
std::optional<ExecutionState> state_of(const std::string& name);
inline bool has_ended(ExecutionState state) {
  return state == ExecutionState::kSucceeded || state == ExecutionState::kFailed;
}

// How far a running job is: what its supervisor's death means depends on it.
enum class Phase : std::uint8_t {
  kWaiting,    // it has no nodes
  kClaimed,    // it has nodes, and nothing was done on them
  kPreparing,  // agents are there, and jobPreparation may run
  kStarted     // ranks may have been started
};

// Why a job failed, in the service's words.
struct JobError {
  std::string code;  // "JobFailed"; empty: none
  std::string message;
  std::string details;  // the last that hvdrun said

  friend bool operator==(const JobError&, const JobError&) = default;
};

struct JobNode {
  std::string name;
  std::string address;  // among the job's nodes; empty: not known yet
};

// Times are milliseconds since 1970, 0: not yet.
struct JobRecord {
  std::int64_t id = 0;
  std::string uuid;
  std::string name;
  std::string cluster;
  std::string experiment;
  std::string tool;
  int node_count = 1;
  int process_count = 1;
  int priority = 0;
  std::string priority_word;
  std::string segment;
  std::string properties;  // JSON: what the file says, without its secrets
  ExecutionState state = ExecutionState::kQueued;
  Phase phase = Phase::kWaiting;
  std::int64_t created_ms = 0;
  std::int64_t changed_ms = 0;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::optional<int> exit_code;  // of the program, if it ended by itself
  int status = 0;                // hvdrun's, which `wait` ends with
  JobError error;
  std::string output;                   // the directory of its files, as this machine sees it; empty: not known yet
  std::vector<JobNode> nodes;           // that it had last
  std::vector<std::string> rank_files;  // of rank N's standard output, in `output`
  int attempts = 0;                     // how often nodes were given to it
  // its supervisor
  int pid = 0;
  std::int64_t pid_start = 0;
  std::string boot;
  std::int64_t leave_ms = 0;  // that its agents may need to notice its death
  bool is_local = false;      // all its nodes are this machine
};

// How a job ended, or what is to be told of it.
struct JobEnd {
  ExecutionState state = ExecutionState::kFailed;
  std::optional<int> exit_code;
  int status = 0;
  JobError error;
};

// What `-f` would run, as the service tells it: its JSON has no value of a secret, password or key.
std::string properties_json(const JobRun& run);
// As the service's REST object has it, in one object; absent values are null.
std::string record_json(const JobRecord& record);
// A part of a JSON object: "executionInfo.exitCode", "nodes.0.name"; texts as they are, all else as JSON. nullopt:
// there is no such key.
std::optional<std::string> json_field(const std::string& json, const std::string& path);

// AZ_BATCHAI_OUTPUT_<id> as this machine sees it. nullopt: there is none of that name, or it is not known here.
std::optional<std::string> output_directory(const JobRecord& record, const std::string& id);

// "2018-07-18T22:41:28+00:00"; empty for 0.
std::string utc_text(std::int64_t ms);

// The lists of a record as text in the store.
std::string nodes_text(const std::vector<JobNode>& nodes);
std::vector<JobNode> nodes_of_text(const std::string& text);
std::string names_text(const std::vector<std::string>& names);
std::vector<std::string> names_of_text(const std::string& text);

}  // namespace hvd::launch
