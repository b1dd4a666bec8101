// A store of the service's records whose clock stands where the test puts it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/service/job_store.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::test {

struct Records {
  Records() : dir(launch::StateDir::open(folder.path + "/state/hvdrun").value()), store(open()) {}

  launch::JobStore open() {
    return launch::JobStore::open(dir, [this] { return now; }).value();
  }

  launch::JobRecord add(const std::string& name, int nodes = 1, int priority = 0) {
    launch::JobRecord job;
    job.uuid = name + "-uuid";
    job.name = name;
    job.cluster = "lab";
    job.experiment = "default";
    job.tool = "horovod";
    job.node_count = nodes;
    job.process_count = nodes;
    job.priority = priority;
    job.priority_word = "normal";
    job.segment = "a/jobs/" + name + "/b";
    job.properties = "{}";
    auto added = store.add_job(job, true);
    REQUIRE_MESSAGE(added.ok(), added.error().message());
    return added.value();
  }

  launch::JobRecord add_elastic(const std::string& name, int least, int most) {
    launch::JobRecord job = add(name, least);
    launch::Database database = launch::Database::open(dir.database()).value();
    REQUIRE(database
                .change("UPDATE job SET min_nodes = ?, max_nodes = ? WHERE id = ?",
                        {std::int64_t{least}, std::int64_t{most}, job.id})
                .ok());
    return store.job(job.id).value();
  }

  std::vector<std::string> nodes_of(const launch::JobRecord& job) {
    std::vector<std::string> names;
    const launch::JobRecord now_there = store.job(job.id).value();
    for (const launch::JobNode& node : now_there.nodes) {
      names.push_back(node.name);
    }
    return names;
  }

  void add_cluster(const std::string& hosts, const std::string& name = "lab") {
    launch::Cluster cluster;
    cluster.name = name;
    cluster.hosts = launch::parse_host_list(hosts).value();
    const auto added = store.clusters().add(cluster);
    REQUIRE_MESSAGE(added.ok(), added.error().message());
  }

  std::vector<launch::ClusterNodeState> states() {
    std::vector<launch::ClusterNodeState> all;
    const launch::ClusterRecord cluster = store.clusters().find("lab").value();
    for (const launch::NodeRecord& node : cluster.nodes) {
      all.push_back(node.state);
    }
    return all;
  }

  Folder folder;
  std::int64_t now = 1'500'000'000'000;
  launch::StateDir dir;
  launch::JobStore store;
};

inline const launch::Claimant kSomebody{1, 2, "boot"};

}  // namespace hvd::test
