// These are the events of a job: what JobState is told. Each is a plain value, so that a test writes down a whole job.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/process/exit_status.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/failure_news.h"

namespace hvd::launch {

struct NodeReady {
  int node = 0;
};
struct NodeLost {  // its agent could not be reached, or its session broke
  int node = 0;
  Error why;
};
struct NodeEnding {  // its agent stops its ranks, although we did not ask for it
  int node = 0;
  std::string why;
  bool is_last = false;  // the agents of all others have said before that they end, or that their ranks are to leave
};
struct RankStarted {
  int rank = 0;
  int pid = 0;
};
struct RankJoined {  // its runtime is about to meet the others
  int rank = 0;
};
struct MembersChanged {  // these ranks train together now
  std::vector<int> members;
  bool is_repeated = false;  // as before, when they had not met
};
struct NodeJoining {  // a node was added to the placement of the running job
  int node = 0;
};
struct RanksReleased {  // their host is given back, and the others train without them: they are to end
  std::vector<int> ranks;
  bool are_told = false;  // their runtimes are, and end them
};
struct HostUnmet {  // these ranks of one host had come to the running job, and cannot meet the others
  std::vector<int> ranks;
};
struct HostsDue {};  // AwaitHosts is over
struct RankStartFailed {
  int rank = 0;
  Error why;
};
struct RankFailing {  // it reported its own failure, and may live on for a while
  int rank = 0;
  FailureNews news;
  TimePoint at{};
};
struct RankComplained {  // its standard error shows a failure; it may live on for any time
  int rank = 0;
  bool has_lost_a_peer = false;  // the failure that it printed last says so
  TimePoint at{};
};
struct RankExited {
  int rank = 0;
  ExitStatus status;
  ExitDetail detail{};
  TimePoint at{};
};
struct CauseDue {};   // AwaitCause is over: a rank that has not failed by now did not fail first
struct RankOverdue {  // AwaitEnd is over: the rank should have ended by now
  int rank = 0;
  int pid = 0;
};
struct NodeDone {  // all its processes are gone
  int node = 0;
};
struct Interrupted {
  int signo = 0;
};
struct OutputFailed {
  Error why;
};
struct FilesFailed {  // the ranks' output still reaches the console, but no longer all of its files
  Error why;
};
struct EngineEnded {  // the engine ended before its agents did
  Error why;
};
struct Misplaced {  // an engine has put a rank elsewhere than planned
  Error why;
};
struct StartTimedOut {};
struct TimedOut {  // the job has run for as long as this setting allows
  std::string setting;
};
struct StopTimedOut {};  // a node did not report its end in time
using JobEvent = std::variant<NodeReady, NodeLost, NodeEnding, RankStarted, RankJoined, MembersChanged, RankStartFailed,
                              RankFailing, RankComplained, RankExited, CauseDue, RankOverdue, NodeDone, NodeJoining,
                              RanksReleased, HostUnmet, HostsDue, Interrupted, OutputFailed, FilesFailed, EngineEnded,
                              Misplaced, StartTimedOut, TimedOut, StopTimedOut>;

}  // namespace hvd::launch
