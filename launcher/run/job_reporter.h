// JobReporter: what hvdrun itself says of a job, made of what happens to it. JobRunner tells it each event and prints
// the lines that it gives, so that this layer decides only when something is said. launcher/report has the one that
// makes words for people and the one that makes JSON for programs.
//
// Thread: loop only. Lines are whole and without newlines; no lines is an answer too.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/run/job_state.h"
#include "runtime/base/log.h"

namespace hvd::launch {

using Lines = std::vector<std::string>;

// Something that the user should know while the job goes on; below kError --quiet silences it.
struct Note {
  LogLevel level = LogLevel::kWarning;
  int node = -1;  // that it is about; -1: none
  std::string text;
};

// The first failure, with what is known of it.
struct Failure {
  Cause cause;
  // of the rank that failed, if one did
  std::vector<std::string> last_errors;  // the last lines of its standard error, oldest first
  ExitStatus status;
  ExitDetail detail;
  std::string kept_in;    // the folder with all that it printed; empty: not kept
  bool was_told = false;  // on_failing() has
};

class JobReporter {
 public:
  virtual ~JobReporter() = default;
  // The nodes are about to be reached.
  virtual Lines on_begin(const std::string& job_id) = 0;
  // A step on the way to it.
  virtual Lines on_node_progress(int node, const std::string& what) = 0;
  virtual Lines on_node_ready(int node, const ReadyMessage& ready) = 0;
  // Nodes are waited for that long already; told again every few seconds.
  virtual Lines on_slow_start() = 0;
  // The nodes are reached, and the ranks are about to be started.
  virtual Lines on_all_ready(Duration took) = 0;
  // Its connection broke, and is tried again for as long as `patience`.
  virtual Lines on_node_away(int node, const Error& why, Duration patience) = 0;
  virtual Lines on_node_back(int node, Duration away) = 0;
  virtual Lines on_node_lost(int node, const Error& why) = 0;
  virtual Lines on_rank_started(int rank, int pid) = 0;
  virtual Lines on_rank_ended(int rank, const ExitStatus& status, const ExitDetail& detail) = 0;
  // It failed (`cause` tells how), and is started anew.
  virtual Lines on_rank_restarted(int rank, const std::string& cause, int number, int limit) = 0;
  virtual Lines on_note(const Note& note) = 0;
  // A line that the engine (mpirun) itself prints.
  virtual Lines on_engine_line(const std::string& engine, const std::string& line) = 0;
  // The first failure is that of a rank that has not ended yet; on_failure() follows when it has.
  virtual Lines on_failing(const Cause& cause) = 0;
  virtual Lines on_failure(const Failure& failure) = 0;
  // Nothing was tried, for this reason.
  virtual Lines on_refused(const Error& why, int exit_code) = 0;
  virtual Lines on_end(const JobState& state, Duration took) = 0;
  // What is waited for before the ranks start, as a row that a terminal shows until it changes; empty: nothing.
  [[nodiscard]] virtual std::string status() const = 0;

 protected:
  JobReporter() = default;
  JobReporter(const JobReporter&) = default;
  JobReporter& operator=(const JobReporter&) = default;
};

}  // namespace hvd::launch
