// SlurmNotice is what Slurm says when a signal has told hvdrun that the job's time is over: how much is left, and
// whether the job still runs. A job that its user has cancelled gets the same signal as one at its time limit, and only
// that one may go back into the queue.
//
// Thread: loop only. The EventLoop outlives it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class SlurmNotice {
 public:
  // `job`: its number. `say` takes a line for the user.
  SlurmNotice(EventLoop& loop, std::string job, std::vector<std::string> environment,
              std::function<void(const std::string&)> say);

  // Asks Slurm, once; the user is told the answer.
  void ask();
  // Runs the loop until Slurm has answered, for some seconds at most. An error says why the job is not to go back.
  Result<void> settle();

 private:
  EventLoop& loop_;
  const std::string job_;
  const std::vector<std::string> environment_;
  const std::function<void(const std::string&)> say_;
  std::unique_ptr<Engine> squeue_;
  std::string state_;            // as squeue says it: "RUNNING"
  std::optional<Error> failed_;  // squeue said nothing of use
};

// SlurmTime is what `squeue -h -o "%T|%L"` says of a job: "RUNNING|0:58".
struct SlurmTime {
  std::string state;
  std::string left;  // as Slurm writes it: 1-02:03:04; empty: it has no limit

  friend bool operator==(const SlurmTime&, const SlurmTime&) = default;
};
std::optional<SlurmTime> read_slurm_time(std::string_view line);

// Puts the job back into Slurm's queue, so that Slurm ends it now. Blocks.
Result<void> requeue_slurm_job(const std::string& job, const std::vector<std::string>& environment);

// "; its time limit is in 1:02:03" from SLURM_JOB_END_TIME, which newer versions set; empty where they do not. `now_s`:
// seconds since 1970, both.
std::string slurm_end_text(const std::vector<std::string>& environment, long long now_s);

}  // namespace hvd::launch
