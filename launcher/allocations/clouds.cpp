// Clouds and operators of Kubernetes that tell each node of a job the names of all: hvdrun runs on the first node and
// reaches the others by SSH. Clouds that tell only a master's address (MASTER_ADDR, WORLD_SIZE) are not here: their
// nodes cannot be named, and what WORLD_SIZE counts differs between them.
#include <algorithm>

#include "launcher/allocations/node_words.h"
#include "launcher/job/text_file.h"
#include "launcher/jobfile/document.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

// ListWords are the variables of a cloud whose list of nodes is plain text.
struct ListWords {
  const char* engine;
  const char* hosts;
  const char* index;
  const char* count;
  const char* gpus;
};

FoundAllocation find_listed(const Surroundings& here, const ListWords& words) {
  Allocation found;
  found.engine = words.engine;
  const std::string text = value_in(here.environment, words.hosts);
  HVD_TRY_ASSIGN(const std::optional<int> count, number_in(found, here, words.count));
  if (text.empty()) {
    return count.value_or(1) > 1
               ? FoundAllocation(half_known(found, std::string(words.hosts) + " is not set where " + words.count +
                                                       " says " + std::to_string(*count)))
               : FoundAllocation(std::optional<Allocation>());
  }
  found.slots_from = words.hosts;
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, words.hosts, words_between(text, " ,\r\n\t")));
  HVD_TRY(check_count(found, here, words.count, static_cast<int>(found.hosts.size()), words.hosts));
  if (found.hosts.size() > 1) {
    HVD_TRY(check_first(found, here, words.index));
  }
  HVD_TRY_ASSIGN(const std::optional<int> gpus, number_in(found, here, words.gpus));
  if (gpus.value_or(0) > 0) {
    for (HostSpec& host : found.hosts) {
      host.slots = *gpus;
    }
    found.slots_from = words.gpus;
  }
  return complete(std::move(found), here, words.hosts);
}

// Returns "n1" for Vertex's "n1:2222".
std::string without_port(const std::string& name) {
  return name.substr(0, name.find(':'));
}

}  // namespace

FoundAllocation find_skypilot(const Surroundings& here) {
  return find_listed(here, {"SkyPilot", "SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES",
                            "SKYPILOT_NUM_GPUS_PER_NODE"});
}

FoundAllocation find_dstack(const Surroundings& here) {
  return find_listed(here,
                     {"dstack", "DSTACK_NODES_IPS", "DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "DSTACK_GPUS_PER_NODE"});
}

FoundAllocation find_azure(const Surroundings& here) {
  Allocation found;
  found.engine = "Azure";
  const std::string text = value_in(here.environment, "AZ_BATCH_HOST_LIST");
  found.job = value_in(here.environment, "AZUREML_RUN_ID");
  HVD_TRY_ASSIGN(const std::optional<int> count, number_in(found, here, "AZUREML_NODE_COUNT"));
  if (text.empty()) {
    return count.value_or(1) > 1
               ? FoundAllocation(half_known(found,
                                            "AZ_BATCH_HOST_LIST, which names its nodes, is not set where "
                                            "AZUREML_NODE_COUNT says " +
                                                std::to_string(*count)))
               : FoundAllocation(std::optional<Allocation>());
  }
  found.slots_from = "AZ_BATCH_HOST_LIST";
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, "AZ_BATCH_HOST_LIST", words_between(text, ",; ")));
  HVD_TRY(check_count(found, here, "AZUREML_NODE_COUNT", static_cast<int>(found.hosts.size()), "AZ_BATCH_HOST_LIST"));
  if (value_in(here.environment, "AZ_BATCH_IS_CURRENT_NODE_MASTER") == "false") {
    return half_known(found,
                      "AZ_BATCH_IS_CURRENT_NODE_MASTER is false: run hvdrun on the master node alone, and it "
                      "starts the ranks on all");
  }
  if (found.hosts.size() > 1 && !value_in(here.environment, "NODE_RANK").empty()) {
    HVD_TRY(check_first(found, here, "NODE_RANK"));
  }
  return complete(std::move(found), here, "AZ_BATCH_HOST_LIST");
}

FoundAllocation find_vertex(const Surroundings& here) {
  Allocation found;
  found.engine = "Vertex AI";
  found.job = value_in(here.environment, "CLOUD_ML_JOB_ID");
  found.slots_from = "CLUSTER_SPEC";
  const std::string text = value_in(here.environment, "CLUSTER_SPEC");
  if (text.empty()) {
    return std::optional<Allocation>();
  }
  const auto document = parse_json_document(text, "CLUSTER_SPEC");
  if (!document.ok()) {
    return half_known(found, document.error().message());
  }
  const DocValue* cluster = document.value().find("cluster");
  const DocValue* task = document.value().find("task");
  const DocValue* type = task == nullptr ? nullptr : task->find("type");
  const DocValue* index = task == nullptr ? nullptr : task->find("index");
  if (cluster == nullptr || type == nullptr || index == nullptr || cluster->kind != DocValue::Kind::kMap) {
    return half_known(found, "CLUSTER_SPEC does not have 'cluster' and 'task' with 'type' and 'index'");
  }
  std::vector<std::string> names;
  for (const char* pool : {"workerpool0", "workerpool1"}) {  // further ones are parameter servers and evaluators
    if (const DocValue* list = cluster->find(pool); list != nullptr) {
      for (const DocValue& item : list->items) {
        names.push_back(without_port(item.text));
      }
    }
  }
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, "CLUSTER_SPEC", names));
  if (type->text != "workerpool0" || index->text != "0") {
    return half_known(found, "CLUSTER_SPEC says that this is " + shown_text(type->text) + " " +
                                 shown_text(index->text) +
                                 ": run hvdrun on workerpool0 0 alone, and it starts the ranks on all");
  }
  Surroundings named = here;
  named.own_names.push_back(names.front());  // its task says so
  return complete(std::move(found), named, "CLUSTER_SPEC");
}

FoundAllocation find_leader_worker_set(const Surroundings& here) {
  Allocation found;
  found.engine = "LeaderWorkerSet";
  const std::string leader = value_in(here.environment, "LWS_LEADER_ADDRESS");
  if (leader.empty()) {
    return std::optional<Allocation>();
  }
  found.slots_from = "LWS_GROUP_SIZE";
  HVD_TRY_ASSIGN(const std::optional<int> count, number_in(found, here, "LWS_GROUP_SIZE"));
  if (count.value_or(0) < 1) {
    return half_known(found, "LWS_GROUP_SIZE, which counts its pods, is not set");
  }
  if (*count > 1) {
    HVD_TRY(check_first(found, here, "LWS_WORKER_INDEX"));
  }
  // The workers of leader "set-0.set.space" are "set-0-1.set.space" and so on.
  const std::size_t dot = std::min(leader.find('.'), leader.size());
  std::vector<std::string> names = {leader};
  for (int index = 1; index < *count; ++index) {
    names.push_back(leader.substr(0, dot) + "-" + std::to_string(index) + leader.substr(dot));
  }
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, "LWS_LEADER_ADDRESS", names));
  return complete(std::move(found), here, "LWS_LEADER_ADDRESS");
}

FoundAllocation find_volcano(const Surroundings& here) {
  Allocation found;
  found.engine = "Volcano";
  std::vector<std::string> variables;
  for (const std::string& entry : here.environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (name.starts_with("VC_") && name.ends_with("_HOSTS") && entry.size() > name.size() + 1) {
      variables.push_back(name);
    }
  }
  const std::string index = value_in(here.environment, "VC_TASK_INDEX");
  if (variables.empty() || index.empty()) {
    return std::optional<Allocation>();  // the plug-ins svc and env set them
  }
  std::sort(variables.begin(), variables.end());
  if (variables.size() > 1) {
    return half_known(found, variables[0] + " and " + variables[1] +
                                 " name the pods of several tasks; say which, as in -H \"$" + variables[1] + "\"");
  }
  found.slots_from = variables.front();
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, variables.front(),
                                          words_between(value_in(here.environment, variables.front()), ", ")));
  const std::string count = variables.front().substr(0, variables.front().size() - 5) + "NUM";
  HVD_TRY(check_count(found, here, count, static_cast<int>(found.hosts.size()), variables.front()));
  if (found.hosts.size() > 1) {
    HVD_TRY(check_first(found, here, "VC_TASK_INDEX"));
  }
  return complete(std::move(found), here, variables.front());
}

}  // namespace hvd::launch
