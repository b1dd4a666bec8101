#include "launcher/run/start_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "launcher/placement/cpu_binding.h"
#include "launcher/placement/gpu_pinning.h"
#include "launcher/wire/host_run.h"
#include "runtime/base/contract.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

std::pair<std::string, std::string> split_entry(const std::string& entry) {
  const auto equals = entry.find('=');
  return {entry.substr(0, equals), equals == std::string::npos ? "" : entry.substr(equals + 1)};
}

// Returns the variables that the user has given a value, in the environment or by -x.
std::set<std::string> names_set(const JobSpec& spec) {
  std::set<std::string> names;
  for (const std::string& entry : spec.environment) {
    names.insert(split_entry(entry).first);
  }
  for (const auto& [name, value] : spec.user_env) {
    names.insert(name);
  }
  return names;
}

// Returns the NUMA node of each local rank's GPU; -1 where none is known.
std::vector<std::int32_t> near_of_ranks(GpuMode mode, const NodePlan& node, const ReadyMessage& ready,
                                        const std::vector<std::string>& gpus) {
  std::vector<std::int32_t> near;
  for (std::size_t rank = 0;
       mode != GpuMode::kNone && !gpus.empty() && rank < static_cast<std::size_t>(node.local_size()); ++rank) {
    const auto gpu = std::find(ready.gpus.begin(), ready.gpus.end(), gpus[rank % gpus.size()]) - ready.gpus.begin();
    near.push_back(static_cast<std::size_t>(gpu) < ready.near.size() ? ready.near[static_cast<std::size_t>(gpu)] : -1);
  }
  return near;
}

// Returns "node1" for "node1.cluster": a node's own name and the user's name for it may differ in the domain.
std::string short_name(const std::string& name) {
  return name.substr(0, name.find('.'));
}

// True when the node's own name is that of another node of the job, and not of this one. A name that matches no node's
// (an alias, an address) proves nothing.
bool is_named_as_another(const Placement& placement, const NodePlan& node, const std::string& own_name) {
  const auto is_called_so = [&own_name](const NodePlan& other) {
    return short_name(other.host.name) == short_name(own_name);
  };
  return !is_called_so(node) && std::any_of(placement.nodes.begin(), placement.nodes.end(), is_called_so);
}

// Returns how much standard input may be under way to a node. It is less where input goes to many nodes, whose
// connections may all be slow.
std::uint32_t input_window(const JobSpec& spec, std::size_t nodes) {
  constexpr std::uint32_t kLeast = 16U << 10U;
  const auto share = static_cast<std::uint32_t>(kInputWindow / std::max<std::size_t>(nodes, 1));
  return spec.input == InputMode::kAll ? std::max(kLeast, share) : kInputWindow;
}

bool has_several_interfaces(const ReadyMessage& ready) {
  return std::any_of(ready.networks.begin(), ready.networks.end(), [&ready](const NamedNetwork& network) {
    return network.interface != ready.networks.front().interface;
  });
}

// Returns the machines, for the host file of scripts that call mpirun themselves.
std::vector<HostRun> hosts_of(const Placement& placement) {
  std::vector<std::pair<std::string, int>> machines;
  std::map<int, int> slots;  // by the machine
  for (const NodePlan& node : placement.nodes) {
    slots[node.machine] = node.local_size();
  }
  for (const auto& [machine, count] : slots) {
    const NodePlan& node = placement.nodes[static_cast<std::size_t>(machine)];
    machines.emplace_back(node.host.name, count);
  }
  return runs_of(machines);
}

// NodeShares is what the ranks of a node divide among them, by local rank.
struct NodeShares {
  JobGpus gpus;
  std::vector<RankCpus> cpus;
};

// Returns the ranks of the node, after those of other nodes on the same machine (ReadyMessage::machine).
std::vector<int> ranks_of_machine(const JobView& job, const NodePlan& node, const std::string& machine) {
  std::vector<int> ranks;
  for (const NodePlan& other : job.placement.nodes) {
    if (other.index != node.index && !machine.empty() && job.of(other.ranks.front().rank).ready.machine == machine) {
      std::transform(other.ranks.begin(), other.ranks.end(), std::back_inserter(ranks),
                     [](const RankPlan& rank) { return rank.rank; });
    }
  }
  std::transform(node.ranks.begin(), node.ranks.end(), std::back_inserter(ranks),
                 [](const RankPlan& rank) { return rank.rank; });
  return ranks;
}

// Returns what the node has reported of itself, to be divided among its ranks. Spark gives each task GPUs of its own,
// and its agent reports these alone, so the reports of all agents of the machine are joined, the first GPU of each task
// first. A rank's own GPU then stands at its local rank. What joins a running job is a node of its own on that machine,
// and comes last.
ReadyMessage told_by_node(const JobSpec& spec, const JobView& job, const NodePlan& node, const ReadyMessage& ready) {
  ReadyMessage told = ready;
  if (spec.launcher != LauncherKind::kSpark) {
    return told;
  }
  told.gpus.clear();
  told.near.clear();
  bool has_more = true;
  for (std::size_t index = 0; std::exchange(has_more, false); ++index) {
    for (const int rank : ranks_of_machine(job, node, ready.machine)) {
      const ReadyMessage& task = job.of(rank).ready;
      if (index >= task.gpus.size()) {
        continue;
      }
      has_more = true;
      if (std::find(told.gpus.begin(), told.gpus.end(), task.gpus[index]) == told.gpus.end()) {
        told.gpus.push_back(task.gpus[index]);
        told.near.push_back(index < task.near.size() ? task.near[index] : -1);
      }
    }
  }
  return told;
}

// `own`: what the agent itself has reported; `ready`: told_by_node() of it.
NodeShares shares_of(const JobSpec& spec, const NodePlan& node, const ReadyMessage& own, const ReadyMessage& ready) {
  NodeShares shares;
  shares.gpus.variable = ready.gpu_variable;
  shares.gpus.names = gpus_of_job(node, ready.gpus).value();
  shares.gpus.is_whole = shares.gpus.names == own.gpus;
  shares.cpus = bind_ranks(spec.bind, ready.cores, node.local_size(),
                           near_of_ranks(spec.gpus, node, ready, shares.gpus.names), ready.processor_limit);
  return shares;
}

StartMessage::Rank start_of_rank(const JobSpec& spec, const JobView& job, const NodePlan& node, const RankPlan& rank,
                                 const NodeFacts& facts, const JobFacts& job_facts, const NodeShares& shares) {
  const RankCpus& own = shares.cpus[static_cast<std::size_t>(rank.local_rank)];
  // A program that starts ranks of its own would pass our place variables on to all of these.
  EnvList env = spec.tells_place ? rank_env(job.placement, node, rank, facts, job_facts, own.threads)
                                 : EnvList{{"PYTHONUNBUFFERED", "1"}};
  const EnvList pinned = gpu_env(spec.gpus, shares.gpus, rank.local_rank, node.local_size());
  env.insert(env.end(), pinned.begin(), pinned.end());
  return StartMessage::Rank{rank.rank, std::move(env), own.cpus, {}, is_given_input(spec, rank.rank)};
}

// Warns of nodes that are one machine under several names, each of which would give out all of its GPUs and cores.
// Nodes are one machine when they report the same host name and addresses. Returns a line for each such machine.
std::vector<std::string> same_machine_warnings(const JobSpec& spec, const JobView& job) {
  std::map<std::string, std::vector<const NodePlan*>> nodes_of;
  for (const NodePlan& node : job.placement.nodes) {
    const ReadyMessage& ready = job.of(node.ranks.front().rank).ready;
    if ((spec.gpus == GpuMode::kNone || ready.gpus.empty()) && spec.bind == BindMode::kNone) {
      continue;
    }
    std::string machine = ready.host_name;
    for (const NamedNetwork& network : ready.networks) {
      machine += " " + network.network;
    }
    nodes_of[machine].push_back(&node);
  }
  std::vector<std::string> warnings;
  for (const auto& [machine, nodes] : nodes_of) {
    if (nodes.size() > 1) {
      const std::string others = nodes.size() > 2 ? " and " + std::to_string(nodes.size() - 2) + " others" : "";
      warnings.push_back(nodes[0]->host.name + " and " + nodes[1]->host.name + others + " are one machine (" +
                         machine.substr(0, machine.find(' ')) +
                         "), whose GPUs and cores are now given out for each; name it once, with all of its slots");
    }
  }
  return warnings;
}

// Hosts may join the job while it runs.
bool may_grow(const JobSpec& spec) {
  return spec.discovery.is_on() || !spec.join_file.empty();
}

// Says where nodes were reached at addresses that they do not have themselves, and which ones the ranks use; else
// empty.
std::string translation_warning(const JobSpec& spec, const JobView& job) {
  const std::vector<std::string> addresses = data_addresses(job.views, spec.interfaces, may_grow(spec));
  std::string text;
  std::size_t others = 0;
  for (const NodePlan& agent : job.agents.nodes) {
    const auto index = static_cast<std::size_t>(agent.index);
    const NodeView& view = job.views[index];
    if (!spec.interfaces.empty() || !is_translated(view)) {
      continue;
    }
    others += text.empty() ? 0U : 1U;
    if (text.empty()) {
      text = agent.host.name + " was reached at " + view.opened.node_address +
             ", which it does not have itself (address translation?); its ranks are reached at " + addresses[index];
    }
  }
  const std::string more = others > 0 ? ", and so it is with " + counted(others, "other node") : "";
  return text.empty() ? "" : text + more + "; --network-interfaces chooses others";
}

// True for variables that users set on the machine where they start the job, and mean for all ranks.
bool is_setting(std::string_view name) {
  return name.starts_with("HOROVOD_") || name.starts_with("NCCL_") || name.starts_with("HVD_");
}

}  // namespace

int most_ranks_of(const JobSpec& spec) {
  return spec.discovery.most_ranks > 0 ? spec.discovery.most_ranks : kMostRanks;
}

bool is_given_input(const JobSpec& spec, int rank) {
  return spec.input == InputMode::kAll || (spec.input == InputMode::kOne && spec.input_rank == rank);
}

bool is_given_input(const JobSpec& spec, const NodePlan& agent) {
  return std::any_of(agent.ranks.begin(), agent.ranks.end(),
                     [&spec](const RankPlan& rank) { return is_given_input(spec, rank.rank); });
}

void add_environment(const JobSpec& spec, bool is_local, StartMessage& start) {
  for (const std::string& entry : spec.environment) {
    const auto pair = split_entry(entry);
    if (is_outer_launcher_variable(pair.first)) {
      // mpirun has set its own variables of these names in the agents; hvdrun's never got there.
      if (spec.launcher != LauncherKind::kMpi) {
        start.unset.push_back(pair.first);
      }
    } else if (spec.launcher == LauncherKind::kSpark) {
      // The executors have their own environment (PATH, PYTHONPATH), even on the driver's machine.
      if (is_setting(pair.first)) {
        start.env.push_back(pair);
      }
    } else if (!is_local && !is_host_bound_variable(pair.first)) {
      start.env.push_back(pair);  // a local agent inherits all of them, host-bound ones too
    }
  }
  start.last = spec.user_env;
}

std::optional<StartFailedMessage> find_missing_gpu(const JobView& job) {
  for (const NodePlan& node : job.placement.nodes) {
    const int first = node.ranks.front().rank;
    const auto gpus = gpus_of_job(node, job.of(first).ready.gpus);
    if (!gpus.ok()) {
      return StartFailedMessage{first, gpus.error()};
    }
  }
  return std::nullopt;
}

std::optional<StartFailedMessage> find_missing_interface(const JobSpec& spec, const JobView& job) {
  for (const NodePlan& agent : job.agents.nodes) {
    const NodeView& view = job.views[static_cast<std::size_t>(agent.index)];
    if (const auto missing = missing_interface(view, agent.host.name, spec.interfaces); !missing.empty()) {
      return StartFailedMessage{agent.ranks.front().rank, Error(Code::kResource, missing)};
    }
  }
  return std::nullopt;
}

Result<void> check_seat(const Placement& placement, int rank, const ReadyMessage& ready, const std::string& node_name) {
  const NodePlan& node = placement.node_of(rank);
  const int local_rank = rank - node.ranks.front().rank;
  const Seat& seat = ready.seat;
  if (seat.size == placement.size && seat.local_rank == local_rank && seat.local_size == node.local_size() &&
      ready.host_name == node_name && !is_named_as_another(placement, node, ready.host_name)) {
    return {};
  }
  const auto described = [](int local, int local_size, const std::string& host, int size) {
    return "local rank " + std::to_string(local) + " of " + std::to_string(local_size) + " on " + host + ", of " +
           std::to_string(size) + " in all";
  };
  const bool may_be_one = placement.nodes.size() > 1 && seat.local_size > node.local_size();
  const std::string advice =
      may_be_one ? "; are two of the hosts one machine? Then name it once, with the slots of both. Else, " : "; ";
  return Error(Code::kInvalid, "rank " + std::to_string(rank) + " was put elsewhere than planned: it is " +
                                   described(seat.local_rank, seat.local_size, ready.host_name, seat.size) +
                                   ", and is to be " +
                                   described(local_rank, node.local_size(), node.host.name, placement.size) + advice +
                                   "where ranks go is for -np, -H and --hostfile to say, and not for --mpi-args");
}

Result<void> check_seats(const JobView& job) {
  for (const NodePlan& node : job.placement.nodes) {
    const std::string& name = job.of(node.ranks.front().rank).ready.host_name;
    for (const RankPlan& rank : node.ranks) {
      HVD_TRY(check_seat(job.placement, rank.rank, job.of(rank.rank).ready, name));
    }
  }
  return {};
}

void set_program(const RankProgram& program, StartMessage& start, StartMessage::Rank& rank) {
  rank.argv = program.argv;
  rank.env.insert(rank.env.end(), program.env.begin(), program.env.end());
  start.files.insert(start.files.end(), program.files.begin(), program.files.end());
}

Result<void> check_input_rank(const JobSpec& job, int size) {
  if (job.input != InputMode::kOne || job.input_rank < size) {
    return {};
  }
  return Error(Code::kInvalid,
               "--stdin " + std::to_string(job.input_rank) + ": the last rank is " + std::to_string(size - 1));
}

Result<void> check_shown_ranks(const JobSpec& job, int size) {
  const int most = may_grow(job) ? std::max(most_ranks_of(job), size) : size;
  return job.shown_ranks.last() < most
             ? Result<void>()
             : Error(Code::kInvalid, "--show-ranks " + std::to_string(job.shown_ranks.last()) + ": the last rank is " +
                                         std::to_string(most - 1));
}

std::vector<StartMessage> make_start_messages(const JobSpec& spec, const JobView& job, const std::string& job_id,
                                              const std::string& token, const std::vector<RankProgram>& programs) {
  const std::vector<std::string> addresses = data_addresses(job.views, spec.interfaces, may_grow(spec));
  const std::set<std::string> chosen = names_set(spec);
  JobFacts facts;
  facts.job_id = job_id;
  facts.agent_token = token;
  facts.master_address = addresses.front();
  facts.master_port = job.views.front().ready.reserved_port;
  facts.has_mpi = spec.launcher == LauncherKind::kMpi;
  facts.restart_limit = spec.restart_limit;
  facts.fresh = spec.fresh;
  facts.elastic_timeout_s = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(spec.elastic_timeout).count());
  const std::vector<HostRun> hosts = hosts_of(job.placement);
  const std::uint32_t window = input_window(spec, job.agents.nodes.size());
  std::vector<StartMessage> messages;
  for (const NodePlan& agent : job.agents.nodes) {
    const NodePlan& node = job.placement.node_of(agent.ranks.front().rank);
    // Use the same address for all ranks of a node, even where each has an agent and these were reached at several
    // addresses.
    const int first_agent = job.agents.node_of(node.ranks.front().rank).index;
    const NodeView& view = job.views[static_cast<std::size_t>(agent.index)];
    StartMessage start;
    start.cwd = spec.cwd;
    start.argv = spec.argv;
    start.may_restart = spec.restart_limit > 0;
    start.proposed = default_variables();
    add_environment(spec, view.opened.is_local, start);
    const std::string& address = addresses[static_cast<std::size_t>(first_agent)];
    const NodeFacts node_facts{address, view.ready.socket_path, interface_of(view, address),
                               has_several_interfaces(view.ready), hostfile_beside(view.ready.socket_path)};
    start.hosts = hosts;
    start.input_window = is_given_input(spec, agent) ? window : 0;
    const NodeShares shares = shares_of(spec, node, view.ready, told_by_node(spec, job, node, view.ready));
    for (const RankPlan& rank : agent.ranks) {
      StartMessage::Rank& own =
          start.ranks.emplace_back(start_of_rank(spec, job, node, rank, node_facts, facts, shares));
      std::erase_if(own.env, [&start, &chosen](const auto& pair) {
        return chosen.contains(pair.first) &&
               std::find(start.proposed.begin(), start.proposed.end(), pair.first) != start.proposed.end();
      });
      if (!programs.empty()) {
        set_program(programs[static_cast<std::size_t>(rank.rank)], start, own);
      }
    }
    messages.push_back(std::move(start));
  }
  return messages;
}

StartMessage late_start_message(const JobSpec& spec, const Placement& placement, const std::map<int, NodeView>& views,
                                int node, const LateStart& late) {
  Placement there;  // without the nodes that are lost
  there.size = placement.size;
  std::vector<NodeView> views_there;
  for (const auto& [index, view] : views) {
    NodePlan plan = placement.nodes[static_cast<std::size_t>(index)];
    plan.index = static_cast<int>(there.nodes.size());
    const auto same = std::find_if(there.nodes.begin(), there.nodes.end(),
                                   [&plan](const NodePlan& other) { return other.host.name == plan.host.name; });
    plan.machine = same == there.nodes.end() ? plan.index : same->index;
    there.nodes.push_back(std::move(plan));
    views_there.push_back(view);
  }
  const JobView job{there, there, views_there};
  auto messages = make_start_messages(spec, job, late.job_id, late.token);
  const auto own = static_cast<std::size_t>(std::distance(views.begin(), views.find(node)));
  StartMessage start = std::move(messages[own]);
  start.is_joining = true;
  start.generation = late.generation;
  start.input_window = 0;
  for (StartMessage::Rank& rank : start.ranks) {
    rank.env.emplace_back(contract::kJoining, "1");
    rank.reads_input = false;  // all of the input went to ranks that were there before
  }
  return start;
}

StartMessage restart_message(const StartMessage& start, int rank, int number) {
  StartMessage again = start;
  std::erase_if(again.ranks, [rank](const StartMessage::Rank& other) { return other.rank != rank; });
  again.ranks.front().env.emplace_back("TORCHELASTIC_RESTART_COUNT", std::to_string(number));
  again.ranks.front().reads_input = false;  // the input that the rank was given went to its first process
  again.input_window = 0;
  return again;
}

std::vector<std::string> start_warnings(const JobSpec& spec, const JobView& job) {
  std::vector<std::string> warnings = same_machine_warnings(spec, job);
  if (const std::string text = translation_warning(spec, job); !text.empty()) {
    warnings.push_back(text);
  }
  for (const NodePlan& node : job.placement.nodes) {
    const ReadyMessage ready = told_by_node(spec, job, node, job.of(node.ranks.front().rank).ready);
    const auto gpus = gpus_of_job(node, ready.gpus).value();
    for (const std::string& text : {gpu_warning(spec.gpus, node, gpus), bind_warning(spec.bind, node, ready.cores)}) {
      if (!text.empty()) {
        warnings.push_back(text);
      }
    }
  }
  return warnings;
}

}  // namespace hvd::launch
