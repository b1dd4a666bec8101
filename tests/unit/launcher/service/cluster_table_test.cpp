// launcher/service/cluster_table: clusters, and who has their nodes.
#include "launcher/service/cluster_table.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/service/job_store.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::cluster_table_test {
namespace {

Cluster cluster_of(const std::string& name, const std::string& hosts) {
  Cluster cluster;
  cluster.name = name;
  cluster.hosts = parse_host_list(hosts).value();
  return cluster;
}

// A table in a database of its own, in which there are no jobs.
struct Table {
  Table() : dir(StateDir::open(folder.path).value()), database(open()), clusters(database, [this] { return now; }) {}

  Database open() {
    CHECK(JobStore::open(dir, [] { return std::int64_t{0}; }).ok());  // it makes the tables
    return Database::open(dir.database()).value();
  }

  std::string refusal_of(const Cluster& cluster) {
    const auto added = clusters.add(cluster);
    return added.ok() ? "" : added.error().message();
  }

  test::Folder folder;
  std::int64_t now = 1'500'000'000'000;
  StateDir dir;
  Database database;
  ClusterTable clusters;
};

}  // namespace

TEST_CASE("a host is in one cluster only, and a cluster that is refused leaves nothing behind") {
  Table table;
  REQUIRE(table.refusal_of(cluster_of("one", "a,b")) == "");
  CHECK(table.refusal_of(cluster_of("one", "c")).find("there is a cluster 'one' already") != std::string::npos);
  CHECK(table.refusal_of(cluster_of("two", "c,b")).find("the host b is in the cluster 'one' already") !=
        std::string::npos);
  CHECK(!table.clusters.has("two").value());
  CHECK(table.refusal_of(cluster_of("three", "c")) == "");  // the refused one does not have it
}

TEST_CASE("the only cluster needs no name, and of several the names are told") {
  Table table;
  CHECK(table.clusters.find("").error().message().starts_with("there is no cluster yet"));
  REQUIRE(table.refusal_of(cluster_of("one", "a:4,b")) == "");
  const ClusterRecord only = table.clusters.find("").value();
  CHECK(only.cluster.name == "one");
  CHECK(only.created_ms == table.now);
  REQUIRE(only.nodes.size() == 2);
  CHECK(only.nodes[0].host == only.cluster.hosts[0]);  // with its slots
  REQUIRE(table.refusal_of(cluster_of("another", "c")) == "");
  CHECK(table.clusters.find("").error().message().starts_with("there are several clusters (another, one)"));
  REQUIRE(table.clusters.remove("another").ok());
  CHECK(table.clusters.remove("another").error().code() == Code::kNotFound);
  CHECK(table.clusters.find("").ok());
}

TEST_CASE("a node has one job at a time, which keeps it until it is drained or the job gives up all") {
  Table table;
  REQUIRE(table.refusal_of(cluster_of("lab", "a,b,c")) == "");
  for (const std::string node : {"a", "b"}) {
    REQUIRE(table.clusters.give("lab", node, 7).ok());
  }
  CHECK(table.clusters.give("lab", "a", 8).error().code() == Code::kInternal);
  CHECK(!table.clusters.free_drained(7, "a", 0).value());
  REQUIRE(table.clusters.set_drained("lab", {"a"}, true).ok());
  CHECK(!table.clusters.free_drained(8, "a", 0).value());  // another job's
  CHECK(table.clusters.free_drained(7, "a", table.now + 2000).value());
  REQUIRE(table.clusters.free_all(7, table.now + 1000).ok());
  const std::vector<NodeRecord> nodes = table.clusters.nodes_of("lab").value();
  CHECK((nodes[0].state == ClusterNodeState::kLeaving && nodes[1].state == ClusterNodeState::kLeaving));
  CHECK((nodes[0].job == 0 && nodes[1].job == 0));
  CHECK(table.clusters.next_idle_ms("lab", 0).value() == table.now + 1000);
  REQUIRE(table.clusters.give("lab", "b", 8).ok());  // whether it may have it is the caller's affair
  CHECK(table.clusters.next_idle_ms("lab", 0).value() == table.now + 2000);
}

TEST_CASE("a cluster is not removed while a node is leaving, and then says which were drained") {
  Table table;
  REQUIRE(table.refusal_of(cluster_of("lab", "a,b,c")) == "");
  REQUIRE(table.clusters.give("lab", "b", 7).ok());
  REQUIRE(table.clusters.free_all(7, table.now + 1500).ok());
  REQUIRE(table.clusters.set_drained("lab", {"c"}, true).ok());
  NodeHealth reached;
  reached.was_reached = true;
  REQUIRE(table.clusters.set_health("lab", "b", reached).ok());
  const auto refused = table.clusters.remove("lab");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("has a node, b, where processes") != std::string::npos);
  CHECK(refused.error().message().ends_with("remove it in 2 seconds"));
  table.now += 1500;
  CHECK(table.clusters.remove("lab").value() == std::vector<std::string>{"c"});
  REQUIRE(table.refusal_of(cluster_of("typo", "d")) == "");
  REQUIRE(table.clusters.give("typo", "d", 8).ok());
  REQUIRE(table.clusters.free_all(8, table.now + 1500).ok());
  CHECK(table.clusters.remove("typo").ok());
}

}  // namespace hvd::launch::cluster_table_test
