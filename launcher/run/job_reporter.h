// JobReporter turns the events of a job into the lines that hvdrun itself prints. JobRunner passes it each event and
// prints the lines that it returns, so that this layer decides only when something is reported. launcher/report holds
// the reporter that writes text for people and the one that writes JSON for programs.
//
// Thread: loop only. Lines are complete and without newlines; an empty list means that nothing is printed.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/run/job_state.h"
#include "runtime/base/log.h"

namespace hvd::launch {

using Lines = std::vector<std::string>;

// Note is something that the user should know while the job goes on; --quiet hides all notes below kError.
struct Note {
  LogLevel level = LogLevel::kWarning;
  int node = -1;  // the node that it is about; -1: none
  std::string text;
};

// Failure is the first failure, with what is known of it.
struct Failure {
  Cause cause;
  // the rest describes the rank that failed, if one did
  std::vector<std::string> last_errors;  // the last lines of its standard error, oldest first
  ExitStatus status;
  ExitDetail detail;
  std::string kept_in;    // the folder with all that it printed; empty: not kept
  bool was_told = false;  // on_failing() has already reported it
};

class JobReporter {
 public:
  virtual ~JobReporter() = default;
  // hvdrun is about to connect to the nodes.
  virtual Lines on_begin(const std::string& job_id) = 0;
  // One step of connecting to the node is done.
  virtual Lines on_node_progress(int node, const std::string& what) = 0;
  virtual Lines on_node_ready(int node, const ReadyMessage& ready) = 0;
  // The start takes long; called every few seconds while nodes have not answered.
  virtual Lines on_slow_start() = 0;
  // All nodes have answered, and the ranks are about to be started.
  virtual Lines on_all_ready(Duration took) = 0;
  // The node's connection broke; hvdrun tries to reconnect for as long as `patience`.
  virtual Lines on_node_away(int node, const Error& why, Duration patience) = 0;
  virtual Lines on_node_back(int node, Duration away) = 0;
  virtual Lines on_node_lost(int node, const Error& why) = 0;
  virtual Lines on_rank_started(int rank, int pid) = 0;
  virtual Lines on_rank_ended(int rank, const ExitStatus& status, const ExitDetail& detail) = 0;
  // The rank failed (`cause` says how) and is started again.
  virtual Lines on_rank_restarted(int rank, const std::string& cause, int number, int limit) = 0;
  virtual Lines on_note(const Note& note) = 0;
  // The engine (mpirun) itself printed a line.
  virtual Lines on_engine_line(const std::string& engine, const std::string& line) = 0;
  // The rank that failed first has not ended yet; on_failure() follows when it has.
  virtual Lines on_failing(const Cause& cause) = 0;
  virtual Lines on_failure(const Failure& failure) = 0;
  // The job was refused before anything was tried, for this reason.
  virtual Lines on_refused(const Error& why, int exit_code) = 0;
  virtual Lines on_end(const JobState& state, Duration took) = 0;
  // Returns what the start is waiting for, as a row that a terminal shows until it changes; empty: nothing.
  [[nodiscard]] virtual std::string status() const = 0;

 protected:
  JobReporter() = default;
  JobReporter(const JobReporter&) = default;
  JobReporter& operator=(const JobReporter&) = default;
};

}  // namespace hvd::launch
