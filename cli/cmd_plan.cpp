#include <algorithm>
#include <iomanip>
#include <iostream>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "launcher/placement/placement.h"
#include "launcher/run/relay_tree.h"
#include "launcher/run/start_plan.h"
#include "launcher/run/transport_choice.h"
#include "launcher/transport/local.h"

namespace hvd::cli {
namespace {

using hvd::launch::NodePlan;
using hvd::launch::NodeView;
using hvd::launch::Placement;
using hvd::launch::StartMessage;

// A plan asks no node, so what only a node knows stands in angle brackets.
std::vector<NodeView> imagined_views(const Placement& placement, const Placement& agents) {
  std::vector<NodeView> views;
  for (const NodePlan& agent : agents.nodes) {
    const NodePlan& node = placement.node_of(agent.ranks.front().rank);
    NodeView view;
    view.opened.is_local = hvd::launch::is_local_host(node.host.name);
    view.opened.node_address = view.opened.is_local ? "" : "<address of " + node.host.name + ">";
    view.opened.launcher_address = view.opened.is_local ? "" : "<address of this host>";
    view.ready.socket_path = "<made at start>";
    view.ready.reserved_port = 0;
    const auto gpus = node.host.gpus.empty() ? node.local_size()
                                             : *std::max_element(node.host.gpus.begin(), node.host.gpus.end()) + 1;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      view.ready.gpus.push_back("<GPU " + std::to_string(gpu) + ", if there>");
    }
    views.push_back(view);
  }
  return views;
}

// Values that exist only once agents have answered.
std::string shown(const std::string& name, const std::string& value) {
  if (name == "MASTER_PORT" || name == "OMPI_MCA_orte_hnp_uri") {
    return "<reserved at start>";
  }
  return name == "OMP_NUM_THREADS" ? "<cores / local size>" : value;
}

nlohmann::ordered_json plan_json(const hvd::launch::JobSpec& job, const Placement& placement,
                                 const std::vector<StartMessage>& starts) {
  std::vector<const StartMessage::Rank*> ranks;  // by their number
  for (const StartMessage& start : starts) {
    for (const StartMessage::Rank& rank : start.ranks) {
      ranks.push_back(&rank);
    }
  }
  // Under an engine, whose agents are not the nodes, there is no tree.
  const std::vector<int> relays =
      job.launcher == launch::LauncherKind::kOwn ? launch::relays_of(job, placement) : std::vector<int>();
  nlohmann::ordered_json json;
  json["size"] = placement.size;
  json["argv"] = starts.front().argv;
  json["cwd"] = starts.front().cwd;
  json["nodes"] = nlohmann::ordered_json::array();
  for (const NodePlan& node : placement.nodes) {
    nlohmann::ordered_json entry;
    entry["index"] = node.index;
    entry["host"] = node.host.name;
    entry["transport"] = hvd::launch::transport_name(hvd::launch::choose_transport(job, node.host.name));
    const int relay = relays.empty() ? -1 : relays[static_cast<std::size_t>(node.index)];
    if (relay >= 0) {
      entry["relay"] = placement.nodes[static_cast<std::size_t>(relay)].host.name;
    }
    entry["slots"] = node.host.slots;
    entry["ranks"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < node.ranks.size(); ++i) {
      nlohmann::ordered_json rank;
      rank["rank"] = node.ranks[i].rank;
      rank["local_rank"] = node.ranks[i].local_rank;
      rank["cross_rank"] = node.ranks[i].cross_rank;
      const auto& last = starts.front().last;
      for (const auto* list : {&ranks[static_cast<std::size_t>(node.ranks[i].rank)]->env, &last}) {
        for (const auto& [name, value] : *list) {
          rank["env"][name] = list == &last ? value : shown(name, value);
        }
      }
      entry["ranks"].push_back(std::move(rank));
    }
    json["nodes"].push_back(std::move(entry));
  }
  return json;
}

void print_table(const Placement& placement, const nlohmann::ordered_json& json) {
  std::cout << "rank  node  host                  transport  local_rank  cross_rank\n";
  for (const auto& node : json["nodes"]) {
    for (const auto& rank : node["ranks"]) {
      std::cout << std::left << std::setw(6) << rank["rank"].get<int>() << std::setw(6) << node["index"].get<int>()
                << std::setw(22) << node["host"].get<std::string>() << std::setw(11)
                << node["transport"].get<std::string>() << std::setw(12) << rank["local_rank"].get<int>()
                << rank["cross_rank"].get<int>() << "\n";
    }
  }
  const auto& nodes = json["nodes"];
  const auto relayed =
      std::count_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.contains("relay"); });
  if (relayed > 0) {
    std::cout << "\n" << relayed << " of " << nodes.size() << " nodes are reached through others (--fanout)\n";
  }
  std::cout << "\nenvironment of rank 0 of " << placement.size << ":\n";
  for (const auto& [name, value] : json["nodes"][0]["ranks"][0]["env"].items()) {
    std::cout << "  " << name << "=" << value.get<std::string>() << "\n";
  }
}

}  // namespace

Result<int> print_plan(const CliOptions& options) {
  HVD_TRY_ASSIGN(const Placement placement, launch::place(options.job.hosts, options.job.size));
  const Placement agents = launch::agents_of(options.job, placement);
  const std::vector<NodeView> views = imagined_views(placement, agents);
  const auto starts =
      launch::make_start_messages(options.job, {placement, agents, views}, "<made at start>", "<made at start>");
  const nlohmann::ordered_json json = plan_json(options.job, placement, starts);
  if (options.json) {
    // Replaces what is not UTF-8 (an argument may hold any bytes) instead of throwing.
    std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    print_table(placement, json);
  }
  std::cout.flush();
  return 0;
}

}  // namespace hvd::cli
