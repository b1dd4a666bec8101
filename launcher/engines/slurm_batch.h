// A job that is submitted to Slurm: the script that sbatch takes, and what squeue and scontrol say of it later. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct SlurmBatch {
  std::string name;
  int nodes = 0;  // 0: as many as Slurm likes for the ranks
  int ranks = 0;  // 0: one for each GPU that a node gives
  Duration grace = std::chrono::seconds(10);
  bool is_elastic = false;           // its ranks go on without a node
  bool may_begin_anew = false;       // Slurm may put it back into the queue
  std::string cwd;                   // where hvdrun runs
  std::string output;                // the file that it prints to
  std::vector<std::string> options;  // further options of sbatch, as "--partition=gpu"
  std::vector<std::string> command;  // hvdrun and its words
};

// Returns the script; its body is one exec, so that hvdrun itself gets Slurm's signals. An error names an option that
// cannot stand in it.
Result<std::string> batch_script(const SlurmBatch& batch);

// Returns the job's number from what `sbatch --parsable` prints, "12" or "12;cluster".
Result<std::string> submitted_number(std::string_view output);

enum class SlurmState : std::uint8_t { kPending, kRunning, kCompleted, kFailed };

// SlurmWord is what Slurm says of one job.
struct SlurmWord {
  std::string number;
  std::string word;  // "PENDING", "NODE_FAIL"
  std::string nodes;
  std::optional<int> exit_code;  // of the script, 128 + N for a signal; only where scontrol or sacct say it

  friend bool operator==(const SlurmWord&, const SlurmWord&) = default;
};
SlurmState state_of(const SlurmWord& said);

// Reads what `squeue -h -o "%i|%T|%N"` prints; lines of another form, such as warnings, are left out.
std::vector<SlurmWord> read_squeue(std::string_view output);
// Reads what `scontrol show job -o` prints of one job.
std::optional<SlurmWord> read_scontrol(std::string_view output);
// Reads what `sacct -n -X -P -o JobID,State,ExitCode` prints of one job; the last line counts.
std::optional<SlurmWord> read_sacct(std::string_view output);

}  // namespace hvd::launch
