#include <array>
#include <iostream>

#include <nlohmann/json.hpp>

#include "cli/service_commands.h"
#include "launcher/job/host_list.h"
#include "launcher/job/hostfile.h"
#include "launcher/report/listing.h"
#include "launcher/service/job_record.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front
using Json = nlohmann::ordered_json;

constexpr std::size_t kStates = 5;
// The service's paths and tables need values for these, which hvdrun does not have.
constexpr const char* kResourceGroup = "hvdrun";
constexpr const char* kWorkspace = "default";

std::array<int, kStates> count_states(const ClusterRecord& record) {
  std::array<int, kStates> counts{};
  for (const NodeRecord& node : record.nodes) {
    ++counts[static_cast<std::size_t>(node.state)];
  }
  return counts;
}

int count_of(const std::array<int, kStates>& counts, ClusterNodeState state) {
  return counts[static_cast<std::size_t>(state)];
}

std::string table_of(const std::vector<ClusterRecord>& records) {
  std::vector<std::vector<std::string>> rows;
  for (const ClusterRecord& record : records) {
    const auto counts = count_states(record);
    std::vector<std::string> row = {record.cluster.name, kResourceGroup, kWorkspace, record.cluster.size, "steady"};
    for (const ClusterNodeState state :
         {ClusterNodeState::kIdle, ClusterNodeState::kRunning, ClusterNodeState::kPreparing, ClusterNodeState::kLeaving,
          ClusterNodeState::kUnusable}) {
      row.push_back(std::to_string(count_of(counts, state)));
    }
    rows.push_back(std::move(row));
  }
  return listing({{"Name"},
                  {"Resource Group"},
                  {"Workspace"},
                  {"VM Size"},
                  {"State"},
                  {"Idle", true},
                  {"Running", true},
                  {"Preparing", true},
                  {"Leaving", true},
                  {"Unusable", true}},
                 rows);
}

Json json_of(const ClusterRecord& record) {
  const auto counts = count_states(record);
  Json json = {{"name", record.cluster.name},
               {"vmSize", record.cluster.size.empty() ? Json() : Json(record.cluster.size)},
               {"creationTime", utc_text(record.created_ms)},
               {"allocationState", "steady"},
               {"currentNodeCount", record.nodes.size()},
               {"nodeStateCounts",
                {{"idleNodeCount", count_of(counts, ClusterNodeState::kIdle)},
                 {"leavingNodeCount", count_of(counts, ClusterNodeState::kLeaving)},
                 {"preparingNodeCount", count_of(counts, ClusterNodeState::kPreparing)},
                 {"runningNodeCount", count_of(counts, ClusterNodeState::kRunning)},
                 {"unusableNodeCount", count_of(counts, ClusterNodeState::kUnusable)}}}};
  json["nodes"] = Json::array();
  for (const NodeRecord& node : record.nodes) {
    const bool is_unusable = !node.is_in_service && !node.is_drained;
    json["nodes"].push_back({{"nodeId", node.host.name},
                             {"slots", node.host.slots},
                             {"state", node_state_name(node.state)},
                             {"drained", node.is_drained},
                             {"unusableUntil", is_unusable ? Json(utc_text(node.health.unusable_until_ms)) : Json()},
                             {"error", is_unusable ? Json(node.health.why) : Json()},
                             {"job", node.job == 0 ? Json() : Json(node.job)}});
  }
  json["definition"] = Json::parse(cluster_text(record.cluster), nullptr, false);
  return json;
}

}  // namespace

std::vector<std::string> unusable_lines(const ClusterRecord& cluster) {
  std::vector<std::string> lines;
  for (const NodeRecord& node : cluster.nodes) {
    if (!node.is_in_service && !node.is_drained) {
      lines.push_back(node.health.why + "; no job gets it before " + utc_text(node.health.unusable_until_ms));
    }
  }
  return lines;
}

Result<int> add_cluster(ServicePlace& place, const ServiceOptions& options) {
  const int ways =
      (options.cluster_file.empty() ? 0 : 1) + (options.hosts.empty() ? 0 : 1) + (options.hostfile.empty() ? 0 : 1);
  if (ways != 1) {
    return Error(Code::kInvalid, "cluster add: say its hosts in one way: -f FILE, -H LIST or --hostfile FILE");
  }
  Cluster cluster;
  if (!options.cluster_file.empty()) {
    HVD_TRY_ASSIGN(LoadedCluster loaded, read_cluster(options.cluster_file, options.cluster));
    for (const std::string& notice : loaded.notices) {
      std::cerr << "hvdrun: " << notice << "\n";
    }
    cluster = std::move(loaded.cluster);
  } else if (!options.hosts.empty()) {
    HVD_TRY_ASSIGN(cluster.hosts, parse_host_list(options.hosts));
  } else {
    HVD_TRY_ASSIGN(cluster.hosts, read_hostfile(options.hostfile));
  }
  cluster.name = options.cluster;
  HVD_TRY(place.store.clusters().add(cluster));
  HVD_TRY_ASSIGN(const ClusterRecord record, place.store.clusters().find(options.cluster));
  std::cout << table_of({record});
  return 0;
}

Result<int> show_cluster(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const ClusterRecord record, place.store.clusters().find(options.cluster));
  if (options.json || !options.field.empty()) {
    return print_json(json_of(record).dump(2, ' ', false, Json::error_handler_t::replace), options.field);
  }
  std::cout << table_of({record});
  for (const std::string& line : unusable_lines(record)) {
    std::cout << line << "\n";
  }
  return 0;
}

Result<int> list_clusters(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const std::vector<ClusterRecord> records, place.store.clusters().all());
  if (options.json) {
    Json all = Json::array();
    for (const ClusterRecord& record : records) {
      all.push_back(json_of(record));
    }
    return print_json(all.dump(2, ' ', false, Json::error_handler_t::replace), "");
  }
  std::cout << table_of(records);
  return 0;
}

Result<int> drain_cluster(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const ClusterRecord record, place.store.clusters().find(options.cluster));
  HVD_TRY(place.store.clusters().set_drained(record.cluster.name, options.nodes, options.verb == Verb::kClusterDrain));
  place.dir.wake();
  return show_cluster(place, options);
}

Result<int> remove_cluster(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const std::vector<std::string> drained, place.store.clusters().remove(options.cluster));
  place.dir.wake();
  std::string names;
  for (const std::string& node : drained) {
    add_to_list(names, node);
  }
  if (!names.empty()) {
    std::cerr << "hvdrun: drained were: " << names << "; a cluster that is added again gives them to jobs\n";
  }
  return 0;
}

}  // namespace hvd::cli
