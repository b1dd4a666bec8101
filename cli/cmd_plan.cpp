#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options/job_settings.h"
#include "launcher/job/hidden_texts.h"
#include "launcher/jobfile/container_command.h"
#include "launcher/jobfile/mount_command.h"
#include "launcher/placement/placement.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/relay_tree.h"
#include "launcher/steps/file_programs.h"
#include "launcher/transport/local.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::cli {
namespace {

using hvd::launch::NodePlan;
using hvd::launch::NodeView;
using hvd::launch::Placement;
using hvd::launch::StartMessage;

// A plan asks no node, so values that only a node knows are in angle brackets.
std::vector<NodeView> imagined_views(const Placement& placement, const Placement& agents) {
  std::vector<NodeView> views;
  for (const NodePlan& agent : agents.nodes) {
    const NodePlan& node = placement.node_of(agent.ranks.front().rank);
    NodeView view;
    view.opened.is_local = hvd::launch::is_here(node.host);
    // Ranks of one node meet at its loopback address; of several nodes, at one that only the agents name.
    view.opened.node_address =
        placement.nodes.size() == 1 && view.opened.is_local ? "" : "<address of " + node.host.name + ">";
    view.opened.launcher_address = view.opened.is_local ? "" : "<address of this host>";
    view.ready.socket_path = "<made at start>/agent";
    view.ready.reserved_port = 0;
    const auto gpus = node.host.gpus.empty() ? node.local_size()
                                             : *std::max_element(node.host.gpus.begin(), node.host.gpus.end()) + 1;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      view.ready.gpu_variable = "CUDA_VISIBLE_DEVICES";
      view.ready.gpus.push_back("<GPU " + std::to_string(gpu) + ", if there>");
    }
    views.push_back(view);
  }
  return views;
}

// Replaces values that exist only once agents have answered.
std::string shown(const std::string& name, const std::string& value) {
  if (name == "HVD_AGENT_SOCKET" || name == "HVDRUN_HOSTFILE") {
    return "<made at start>";
  }
  if (name == "MASTER_PORT" || name == "PET_MASTER_PORT" || name == "OMPI_MCA_orte_hnp_uri" ||
      name.starts_with("JAX_COORDINATOR_")) {
    return "<reserved at start>";
  }
  if (name == "AZ_BATCHAI_NUM_GPUS") {
    return "<counted at start>";
  }
  return name == "OMP_NUM_THREADS" ? "<cores / local size>" : value;
}

bool is_secret(const CliOptions& options, const std::string& name) {
  const auto is_named = [&name](const launch::JobVariable& secret) { return secret.name == name; };
  return options.file && std::any_of(options.file->job.secrets.begin(), options.file->job.secrets.end(), is_named);
}

// Returns what a job file adds to the plan: what its nodes do before the ranks, and where things are.
nlohmann::ordered_json file_json(const CliOptions& options, const launch::JobRun& run,
                                 const std::vector<launch::JobNodeFacts>& facts) {
  nlohmann::ordered_json json;
  json["file"] = run.job.file;
  json["name"] = run.job.name;
  json["toolType"] = launch::tool_type(run.job.tool.kind);
  json["nodeCount"] = run.job.node_count;
  json["minNodes"] = run.job.is_elastic() ? nlohmann::ordered_json(run.job.least_nodes()) : nlohmann::ordered_json();
  json["maxNodes"] = run.job.is_elastic() ? nlohmann::ordered_json(run.job.most_nodes()) : nlohmann::ordered_json();
  json["processCount"] = run.layout.size();
  json["nodes"] = run.layout.ids;
  json["startedBy"] = options.job.launcher == launch::LauncherKind::kMpi ? "mpirun" : "hvdrun";
  json["mounts"] = nlohmann::ordered_json::object();
  for (const launch::Mount& mount : run.job.mounts) {
    const std::string root = mount.is_of_cluster ? "$AZ_BATCHAI_MOUNT_ROOT/" : "$AZ_BATCHAI_JOB_MOUNT_ROOT/";
    json["mounts"][root + mount.name] =
        mount.file_system ? launch::described(*mount.file_system) + ", mounted there" : mount.directory;
  }
  json["container"] = run.job.container ? run.job.container->image : "";
  json["containerEngine"] = launch::container_word(run.options.container);
  json["preparation"] = run.job.preparation;
  launch::JobTexts before("<made at start>");
  before.add(launch::set_up_script(run, facts, 0, before).value());
  json["setUp"] = before.joined();
  launch::JobTexts after("<made at start>");
  if (launch::has_mounts_to_clean(run)) {
    after.add(launch::clean_mounts_script(run, after));
  }
  after.add(launch::clean_up_script(run));
  json["cleanUp"] = after.joined();
  json["stdOutErr"] = run.output;
  json["keptAt"] = run.kept_at;
  json["timeoutSeconds"] = std::chrono::duration_cast<std::chrono::seconds>(options.job.timeout).count();
  json["notices"] = options.notices;
  return json;
}

nlohmann::ordered_json plan_json(const CliOptions& options, const Placement& placement,
                                 const std::vector<StartMessage>& starts) {
  const hvd::launch::JobSpec& job = options.job;
  std::vector<const StartMessage::Rank*> ranks;  // indexed by their number
  for (const StartMessage& start : starts) {
    for (const StartMessage::Rank& rank : start.ranks) {
      ranks.push_back(&rank);
    }
  }
  // An engine's agents are not the nodes, and they form no tree.
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
    entry["transport"] = hvd::launch::transport_name(hvd::launch::choose_transport(job, node.host));
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
      const StartMessage::Rank& start = *ranks[static_cast<std::size_t>(node.ranks[i].rank)];
      if (!start.argv.empty() && options.file) {
        rank["argv"] = start.argv;
        rank["text"] = launch::process_text(*options.file, node.ranks[i].rank).value();
      }
      for (const auto* list : {&start.env, &last}) {
        for (const auto& [name, value] : *list) {
          rank["env"][name] = is_secret(options, name) ? "***" : list == &last ? value : shown(name, value);
        }
      }
      entry["ranks"].push_back(std::move(rank));
    }
    json["nodes"].push_back(std::move(entry));
  }
  return json;
}

void print_indented(const std::string& title, const std::string& text) {
  std::cout << "\n" << title << ":\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::cout << "  " << line << "\n";
  }
}

void print_file(const nlohmann::ordered_json& json) {
  const auto& job = json["job"];
  std::cout << "\njob " << job["name"].get<std::string>() << " (" << job["toolType"].get<std::string>() << ") of "
            << job["file"].get<std::string>() << ", its processes started by " << job["startedBy"].get<std::string>()
            << "\n";
  if (!job["maxNodes"].is_null()) {
    std::cout << "  nodes      " << job["nodes"].size() << " to begin with; from " << job["minNodes"].get<int>()
              << " to " << job["maxNodes"].get<int>() << " while it runs\n";
  }
  for (const auto& [name, directory] : job["mounts"].items()) {
    std::cout << "  mount      " << name << " is " << directory.get<std::string>() << "\n";
  }
  if (const auto image = job["container"].get<std::string>(); !image.empty()) {
    std::cout << "  container  " << image << " (--container " << job["containerEngine"].get<std::string>() << ")\n";
  }
  if (const auto kept = job["stdOutErr"].get<std::string>(); !kept.empty()) {
    std::cout << "  output     " << kept << "\n";
  }
  if (const auto preparation = job["preparation"].get<std::string>(); !preparation.empty()) {
    print_indented("every node first runs", preparation);
  }
  print_indented("rank 0 runs", json["nodes"][0]["ranks"][0]["text"].get<std::string>());
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
  if (json.contains("job")) {
    print_file(json);
  }
  std::cout << "\nenvironment of rank 0 of " << placement.size << ":\n";
  for (const auto& [name, value] : json["nodes"][0]["ranks"][0]["env"].items()) {
    std::cout << "  " << name << "=" << value.get<std::string>() << "\n";
  }
}

}  // namespace

Result<int> print_plan(const CliOptions& options) {
  HVD_TRY_ASSIGN(const Placement placement, launch::place(options.job.hosts, options.job.size));
  HVD_TRY(launch::check_input_rank(options.job, placement.size));
  if (!options.job.slots_are_gpus) {
    HVD_TRY(launch::check_shown_ranks(options.job, placement.size));
  }
  const Placement agents = launch::agents_of(options.job, placement);
  const std::vector<NodeView> views = imagined_views(placement, agents);
  std::vector<launch::JobNodeFacts> facts;
  if (options.file) {
    const Placement nodes = options.file->layout.node_placement();
    facts = launch::facts_of(imagined_views(nodes, nodes), {});
  }
  const bool is_custom = options.file && options.file->job.tool.kind == launch::Toolkit::kCustom;
  launch::JobSpec spec = options.job;
  spec.tells_place = !is_custom;
  spec.gpus = is_custom ? launch::GpuMode::kNone : spec.gpus;
  spec.cwd = options.file && !options.file->starts_in_folder() ? options.file->temp() : spec.cwd;
  const launch::JobView view{placement, agents, views};
  const auto starts = launch::make_start_messages(
      spec, view, "<made at start>", "<made at start>",
      options.file ? launch::programs_of(*options.file, facts, view) : std::vector<launch::RankProgram>());
  nlohmann::ordered_json json = plan_json(options, placement, starts);
  if (options.file) {
    json["job"] = file_json(options, *options.file, facts);
    json.erase("argv");
  }
  launch::mask_values(json, spec.hidden);
  for (const std::string& notice : options.notices) {
    std::cerr << "hvdrun: " << launch::masked(notice, spec.hidden) << "\n";
  }
  if (options.json) {
    // Replace what is not UTF-8 (an argument may hold any bytes) instead of throwing.
    std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    print_table(placement, json);
  }
  return 0;
}

}  // namespace hvd::cli
