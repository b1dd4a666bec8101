// JobNews is what JobRunner tells a reporter while a job runs: one value for each thing that has happened. A reporter
// that stands before another changes the value, and never the text that the other makes of it.
//
// Values live only during the call: references point to what the runner holds.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/membership/membership.h"
#include "launcher/state/job_state.h"
#include "launcher/wire/messages.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

namespace hvd::launch {

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
  std::string kept_in;            // the folder with all that it printed; empty: not kept
  bool was_told = false;          // news::Failing has already reported it
  bool is_before_ranks = false;   // a node failed to prepare or to clean up: there are no ranks to stop
  std::size_t just_shown = 0;     // so many of the last errors stand right above on the console
  std::size_t still_running = 0;  // other ranks that have not ended, and are stopped now
};

namespace news {

// hvdrun is about to connect to the nodes.
struct Begun {
  const std::string& job_id;
};
// One step of connecting to the node is done.
struct NodeProgress {
  int node = 0;
  const std::string& what;
};
struct NodeReady {
  int node = 0;
  const ReadyMessage& ready;
};
// The start takes long; comes every few seconds while nodes have not answered.
struct SlowStart {};
// A host joins the running job: the node is being reached.
struct NodeJoining {
  int node = 0;
};
// All nodes have answered, and the ranks are about to be started.
struct AllReady {
  Duration took{};
};
// The node's connection broke; hvdrun tries to reconnect for as long as `patience`.
struct NodeAway {
  int node = 0;
  const Error& why;
  Duration patience{};
};
struct NodeBack {
  int node = 0;
  Duration away{};
};
struct NodeLost {
  int node = 0;
  const Error& why;
};
struct RankStarted {
  int rank = 0;
  int pid = 0;
};
struct RankEnded {
  int rank = 0;
  const ExitStatus& status;
  const ExitDetail& detail;
};
// The rank failed (`cause` says how) and is started again.
struct RankRestarted {
  int rank = 0;
  const std::string& cause;
  int number = 0;
  int limit = 0;
};
// A start of the job has failed for this cause, and all of its ranks are started anew. What is unreached is done
// without.
struct AllRestarted {
  const Cause& cause;
  int number = 0;
  int limit = 0;
};
// The ranks of an elastic job train together in another composition.
struct GenerationFormed {
  const Generation& generation;
  Duration pause{};  // since a rank was lost; zero where none was
};
// The engine (mpirun) itself printed a line.
struct EngineLine {
  const std::string& engine;
  const std::string& line;
};
// The rank that failed first has not ended yet; a Failure follows when it has.
struct Failing {
  const Cause& cause;
  std::size_t still_running = 0;  // as in Failure
};
// The job was refused before anything was tried, for this reason.
struct Refused {
  const Error& why;
  int exit_code = 0;
};
struct Ended {
  const JobState& state;
  Duration took{};
  bool is_before_ranks = false;  // this was the preparation of the nodes, or their clean-up
  int restarts = 0;              // so often all ranks had been started anew
  // For each node: so long from now it may still have ranks, where its agent cannot be reached.
  std::vector<Duration> ranks_may_stay{};
};

}  // namespace news

using JobNews = std::variant<news::Begun, news::NodeProgress, news::NodeReady, news::SlowStart, news::AllReady,
                             news::NodeAway, news::NodeBack, news::NodeLost, news::RankStarted, news::RankEnded,
                             news::RankRestarted, news::AllRestarted, news::GenerationFormed, news::NodeJoining, Note,
                             news::EngineLine, news::Failing, Failure, news::Refused, news::Ended>;

}  // namespace hvd::launch
