// JobRecord is what the service knows of one job, from its submission until it is removed. Value type.
//
//   queued → running → succeeded | failed
//                 ↘ terminating → failed          (stopped by the user)
//   running → queued                              (before any rank was started: its supervisor died, or hosts that
//                                                  were reached before did not answer)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/jobfile/job_run.h"
#include "runtime/base/result.h"

namespace hvd::launch {

enum class ExecutionState : std::uint8_t { kQueued, kRunning, kTerminating, kSucceeded, kFailed };
// Returns the name that `show` prints: "queued", ...
const char* state_name(ExecutionState state);
std::optional<ExecutionState> state_of(const std::string& name);
inline bool has_ended(ExecutionState state) {
  return state == ExecutionState::kSucceeded || state == ExecutionState::kFailed;
}

// True for what can only be a job's number, so that no job has it as its name.
bool is_job_number(std::string_view reference);

// Phase says how far a job has come, because that decides what the death of its supervisor means.
enum class Phase : std::uint8_t {
  kWaiting,    // it has no nodes yet
  kClaimed,    // it has nodes, and nothing has been done on them
  kPreparing,  // agents run on its nodes, and jobPreparation may be running
  kStarted     // ranks may have been started
};

// JobError says why a job failed, in the service's terms.
struct JobError {
  std::string code;  // "JobFailed"; empty: none
  std::string message;
  std::string details;  // the last lines that hvdrun printed

  friend bool operator==(const JobError&, const JobError&) = default;
};

struct JobNode {
  std::string name;
  std::string address;  // at which the job's other nodes reach it; empty: not known yet
};

// Times are milliseconds since 1970; 0: not yet.
struct JobRecord {
  std::int64_t id = 0;
  std::string uuid;
  std::string name;
  std::string cluster;
  std::string engine_job;  // "slurm:12": the engine runs it, and there is no supervisor; empty: the service runs it
  std::string experiment;
  std::string tool;
  int node_count = 1;
  int process_count = 1;
  // of an elastic job; 0: it always has node_count
  int min_nodes = 0;
  int max_nodes = 0;
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
  std::optional<int> exit_code;  // of the program, if it exited by itself
  int status = 0;                // hvdrun's exit code, with which `wait` ends
  JobError error;
  std::string output;                   // the directory of its files, as this machine sees it; empty: not known yet
  std::vector<JobNode> nodes;           // the nodes that it had last
  std::vector<std::string> rank_files;  // [rank] the file of its standard output, in `output`
  int attempts = 0;                     // how often the job was given nodes
  // its supervisor
  int pid = 0;
  std::int64_t pid_start = 0;
  std::string boot;
  std::int64_t leave_ms = 0;  // how long its agents may take to notice the supervisor's death
  bool is_local = false;      // all its nodes are this machine
};

constexpr const char* kStoppedError = "JobTerminated";
constexpr const char* kLostError = "SupervisorLost";
// Whether a user has ended the job, which counts as failed.
inline bool was_stopped(const JobRecord& job) {
  return job.state == ExecutionState::kFailed && job.error.code == kStoppedError;
}

// Gives a job that has no files yet another name, which is part of their paths. What is too long of it is left out.
void rename_job(JobRecord& job, const std::string& name);

// Returns the state as lists show it: a job that a user has ended is "stopped".
const char* listed_state(const JobRecord& job);
// Returns the number of nodes as lists show it. An elastic job has "1-3" while it waits, and "2 of 1-3" then.
std::string listed_nodes(const JobRecord& job);

// RecordedEnd says how a job ended.
struct RecordedEnd {
  ExecutionState state = ExecutionState::kFailed;
  std::optional<int> exit_code;
  int status = 0;
  JobError error;
};

// Returns what `-f` would run, as the service shows it: the JSON contains no value of a secret, password or key.
std::string properties_json(const JobRun& run);
// Returns one JSON object with the fields of the service's REST object; absent values are null.
std::string record_json(const JobRecord& record);
// Returns one field of a JSON object, such as "executionInfo.exitCode" or "nodes.0.name"; a text as it is, anything
// else as JSON. nullopt: there is no such key.
std::optional<std::string> json_field(const std::string& json, const std::string& path);

// True where each process of the job has files of its own, as with TensorFlow.
bool has_file_per_process(const JobRecord& record);
// Returns the name of the file below `output` that is shown where none is named: of all processes, or of the first.
std::string default_file(const JobRecord& record, bool is_error);
// Returns the paths of the files that have one stream of all that the job prints, each once; none before the job has
// nodes.
std::vector<std::string> printed_files(const JobRecord& record, bool is_error);

// Returns AZ_BATCHAI_OUTPUT_<id> as this machine sees it. nullopt: no directory has that name, or it is not known here.
std::optional<std::string> output_directory(const JobRecord& record, const std::string& id);

// Returns "2018-07-18T22:41:28+00:00"; empty for 0.
std::string utc_text(std::int64_t ms);

// The store keeps the lists of a record as text.
std::string nodes_text(const std::vector<JobNode>& nodes);
std::vector<JobNode> nodes_of_text(const std::string& text);
std::string names_text(const std::vector<std::string>& names);
std::vector<std::string> names_of_text(const std::string& text);

}  // namespace hvd::launch
