// rank_env() returns the environment of a rank: all variables that frameworks read, made from the placement and what
// the nodes reported of themselves. Pure: no I/O, no environment read.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"

namespace hvd::launch {

// Variables in order; a later pair of the same name wins.
using EnvList = std::vector<std::pair<std::string, std::string>>;

// NodeFacts is what is known of a node once its agent has answered.
struct NodeFacts {
  std::string address;       // numeric, at which the other nodes reach it
  std::string agent_socket;  // path on the node
  std::string interface{};   // the interface with that address; empty: unknown
  bool has_other_interfaces = false;
  std::string hostfile{};  // path on the node; empty: none
};

struct JobFacts {
  std::string job_id;
  std::string agent_token;
  std::string master_address;  // rank 0's node
  int master_port = 0;         // a port reserved there
  int restart_limit = 0;       // how many times failing ranks are restarted; 0: the job is not elastic
  int elastic_timeout_s = 0;   // limits how long the ranks of an elastic job take to meet again
  FreshStarts fresh{};
  bool has_mpi = false;  // Open MPI started the ranks and set its own variables in them
};

// Returns the identity of the rank, and after it the default variables. `threads`: processors for
// this rank alone; 0: it has all of the node's.
EnvList rank_env(const Placement& placement, const NodePlan& node, const RankPlan& rank, const NodeFacts& facts,
                 const JobFacts& job, int threads);

// Returns the variables that rank_env() only proposes: a value that the user or the node has given them stays.
std::vector<std::string> default_variables();
// True for a variable that an outer launcher set for its own ranks. Inherited, it would give our ranks a wrong
// identity.
bool is_outer_launcher_variable(std::string_view name);
// True for a variable that describes the machine or session it was set in, and must not travel to another host.
bool is_host_bound_variable(std::string_view name);

}  // namespace hvd::launch
