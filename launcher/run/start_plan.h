// These functions take the last step before ranks start. They turn the placement and what the agents reported into the
// start message of each node. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/rank_env.h"
#include "launcher/sessions/node_addresses.h"
#include "launcher/wire/messages.h"

namespace hvd::launch {

// More than any job has.
inline constexpr int kMostRanks = 1'000'000;
// Returns how many ranks the job may have.
int most_ranks_of(const JobSpec& spec);

// JobView is the job when all of its agents have answered.
struct JobView {
  const Placement& placement;
  const Placement& agents;             // agents_of() the placement
  const std::vector<NodeView>& views;  // one for each agent

  [[nodiscard]] const NodeView& of(int rank) const {
    return views[static_cast<std::size_t>(agents.node_of(rank).index)];
  }
};

// Returns the first node that lacks a GPU which the host list names there, as a start failure of the node's first rank.
std::optional<StartFailedMessage> find_missing_gpu(const JobView& job);

// Does the same for the first node that has none of the network interfaces which the user names.
std::optional<StartFailedMessage> find_missing_interface(const JobSpec& spec, const JobView& job);

// Refuses a rank that an engine started on another node than planned; `node_name` is that node's own name.
Result<void> check_seat(const Placement& placement, int rank, const ReadyMessage& ready, const std::string& node_name);
// Checks all ranks. A node counts under the name that the agent of its first rank reported.
Result<void> check_seats(const JobView& job);

// Fills in which of an agent's own variables are removed or replaced for all ranks of its node. Variables that differ
// between ranks are not its concern.
void add_environment(const JobSpec& spec, bool is_local, StartMessage& start);

// True when the rank, or any rank of this agent, is given hvdrun's standard input.
bool is_given_input(const JobSpec& spec, int rank);
bool is_given_input(const JobSpec& spec, const NodePlan& agent);
// Refuses a --stdin that names a rank which a job of `size` ranks does not have.
Result<void> check_input_rank(const JobSpec& job, int size);
// Refuses a --show-ranks that names a rank which a job of `size` ranks neither has nor can get.
Result<void> check_shown_ranks(const JobSpec& job, int size);

// RankProgram is what one rank runs, where ranks differ.
struct RankProgram {
  std::vector<std::string> argv;  // empty: the job's
  EnvList env;                    // applied after what all ranks get, before the user's -x
  // Name ("text-N") and text of files that the rank's agent writes beside its socket, for this rank and for others of
  // the same agent.
  std::vector<std::pair<std::string, std::string>> files{};
};
// Returns one program for each rank, from what the nodes reported.
using ProgramsOf = std::function<std::vector<RankProgram>(const JobView&)>;

// Returns one StartMessage per agent. No GPU may be missing. `programs` holds one entry for each rank, or is empty.
std::vector<StartMessage> make_start_messages(const JobSpec& spec, const JobView& job, const std::string& job_id,
                                              const std::string& token, const std::vector<RankProgram>& programs = {});

// LateStart is what a node is told that joins a running job.
struct LateStart {
  const std::string& job_id;
  const std::string& token;
  std::uint32_t generation = 0;  // the present one, which its ranks wait to be taken into
};

// Says what the ranks of a node run that joins a running job: it changes the node's StartMessage. The other arguments
// are those of late_start_message().
using LateProgramsOf = std::function<void(const Placement& placement, const std::map<int, NodeView>& views, int node,
                                          StartMessage& start)>;

// Makes a rank of the message run the program.
void set_program(const RankProgram& program, StartMessage& start, StartMessage::Rank& rank);

// Returns the StartMessage of a node that joins a running job. `views`: of it and of all nodes that are there, by their
// index. No GPU of it may be missing.
StartMessage late_start_message(const JobSpec& spec, const Placement& placement, const std::map<int, NodeView>& views,
                                int node, const LateStart& late);

// Derives from `start`, which started the ranks of a node, the message that restarts one of them for the `number`th
// time.
StartMessage restart_message(const StartMessage& start, int rank, int number);

// Tells the user how ranks share GPUs and cores, in one line for each node where they do.
std::vector<std::string> start_warnings(const JobSpec& spec, const JobView& job);

}  // namespace hvd::launch
