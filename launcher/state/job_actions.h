// These are the actions of a job: what JobState decides, and JobRunner carries out.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace hvd::launch {

struct StartRanks {};
struct RestartRank {
  int rank = 0;
  int number = 0;     // counts restarts, from 1
  std::string cause;  // how the rank ended
};
struct GoOnWithout {  // the others of an elastic job are enough, or wait for more
  std::vector<int> ranks;
  std::string cause;
  bool is_short = false;  // they wait
};
struct StartNode {  // a node that joins the running job is ready
  int node = 0;
};
struct AwaitHosts {};  // asks for HostsDue after the time in which hosts may join a job that has too few
struct EndNode {       // ends the ranks of the node in order, and then its agent
  int node = 0;
};
struct StopNodes {
  int signo = 0;              // SIGKILL: at once
  std::vector<int> spared{};  // ranks that are already ending; they get SIGKILL when the grace period is over
};
struct TellRanks {  // sends every runtime the news that the job is over
  std::string cause;
};
struct ReportCause {};    // the first cause is known: report it now, before the errors that follow from it
struct ReportFailing {};  // the same before the rank has ended; ReportCause follows when it has
struct Finish {};         // close the sessions and end
struct AwaitCause {};     // asks for CauseDue after the grace period
struct AwaitEnd {         // asks for RankOverdue after the grace period
  int rank = 0;
  int pid = 0;
};
struct EndRank {
  int rank = 0;
  int signo = 0;
};
using JobAction = std::variant<StartRanks, RestartRank, StopNodes, TellRanks, ReportCause, Finish, ReportFailing,
                               AwaitCause, AwaitEnd, EndRank, GoOnWithout, StartNode, AwaitHosts, EndNode>;
using JobActions = std::vector<JobAction>;

}  // namespace hvd::launch
