// JobEnding carries out the end of a job: it reports the cause, stops the nodes, and closes the sessions.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "launcher/run/engine_run.h"
#include "launcher/run/job_parts.h"
#include "launcher/run/last_output.h"
#include "launcher/run/moving_hosts.h"
#include "launcher/tree/result_keeper.h"

namespace hvd::launch {

class JobEnding {
 public:
  // Call before the job begins: files that come home from the nodes are kept in this folder.
  void keep_results(const std::string& folder);
  Result<void> on_result(int node, AgentMessage type, const std::string& body);
  // Returns what has come home, in words; empty: nothing.
  [[nodiscard]] std::string results() const { return results_ == nullptr ? "" : results_->summary(); }

  JobEnding(const JobParts& job, MovingHosts& hosts, EngineRun& engine, LastOutput& output)
      : job_(job), hosts_(hosts), engine_(engine), output_(output) {}

  void act(const ReportCause& action);
  void act(const ReportFailing& action);
  void act(const TellRanks& action);
  void act(const StopNodes& action);
  void act(const Finish& action);
  // Ends the loop once the job is over and no session has an agent any more.
  void end_if_closed();
  // Tells the state of an event that says that the job's time is over.
  void apply_notice(const JobEvent& event);

  [[nodiscard]] bool is_finishing() const { return is_finishing_; }
  // True when such an event has ended the job.
  [[nodiscard]] bool was_told_to_end() const { return was_told_to_end_; }

 private:
  // Names the nodes on which ranks may still be running: a user who ends a job wants to know.
  void name_lost_touch();
  // Gives the nodes so long to end.
  void await_end(Duration patience);

  const JobParts& job_;
  MovingHosts& hosts_;
  EngineRun& engine_;
  LastOutput& output_;
  std::unique_ptr<ResultKeeper> results_;  // null: nothing comes home
  std::uint64_t progress_before_ = 0;      // of the results, when the end was last put off for them
  bool are_results_awaited_ = true;        // until whoever ends the job is in a hurry
  TimerId stop_timer_ = 0;
  TimerId end_timer_ = 0;
  bool was_told_to_end_ = false;
  bool is_finishing_ = false;
};

}  // namespace hvd::launch
