// The last step before ranks start: from the placement and what the agents said, what each node is told. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"
#include "launcher/run/node_addresses.h"

namespace hvd::launch {

// The job when all of its agents have answered.
struct JobView {
  const Placement& placement;
  const Placement& agents;             // agents_of() it
  const std::vector<NodeView>& views;  // one for each agent

  [[nodiscard]] const NodeView& of(int rank) const {
    return views[static_cast<std::size_t>(agents.node_of(rank).index)];
  }
};

// The first node that lacks a GPU which the host list names there, as what its first rank cannot start for.
std::optional<StartFailedMessage> find_missing_gpu(const JobView& job);

// Likewise the first node that has none of the network interfaces which the user names.
std::optional<StartFailedMessage> find_missing_interface(const JobSpec& spec, const JobView& job);

// Refuses a rank that an engine has put elsewhere than the placement says: on a node that calls itself `node_name`.
Result<void> check_seat(const Placement& placement, int rank, const ReadyMessage& ready, const std::string& node_name);
// The same for all of them, with the name of each node that which its first rank has told.
Result<void> check_seats(const JobView& job);

// What is removed from and set over an agent's own variables, for all ranks of its node, beside what is each rank's
// own.
void add_environment(const JobSpec& spec, bool is_local, StartMessage& start);

// Whether the rank, or any of the agent's, is given hvdrun's standard input.
bool is_given_input(const JobSpec& spec, int rank);
bool is_given_input(const JobSpec& spec, const NodePlan& agent);

// What one rank runs where ranks differ.
struct RankProgram {
  std::vector<std::string> argv;  // empty: the job's
  EnvList env;                    // after what all ranks get, before the user's -x
  // Name ("text-N") and text of files that the rank's agent is to write beside its socket, for this rank and for others
  // of the same agent.
  std::vector<std::pair<std::string, std::string>> files{};
};
// One for each rank, from what the nodes have said.
using ProgramsOf = std::function<std::vector<RankProgram>(const JobView&)>;

// One StartMessage per agent. No GPU may be missing. `programs`: one for each rank, or none.
std::vector<StartMessage> make_start_messages(const JobSpec& spec, const JobView& job, const std::string& job_id,
                                              const std::string& token, const std::vector<RankProgram>& programs = {});

// What `start`, which started its node's ranks, is for one of them that is started anew for the `number`th time.
StartMessage restart_message(const StartMessage& start, int rank, int number);

// What the user should know of how ranks share GPUs and cores, a line for each node where they do.
std::vector<std::string> start_warnings(const JobSpec& spec, const JobView& job);

}  // namespace hvd::launch
