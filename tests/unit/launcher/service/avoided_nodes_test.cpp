#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/service/records.h"

namespace hvd::launch::avoided_nodes_test {
namespace {

using hvd::test::kSomebody;
using hvd::test::Records;
using S = ClusterNodeState;
using Names = std::vector<std::string>;

constexpr Code kSilent = Code::kUnreachable;

// A cluster whose nodes an earlier job has reached.
struct Cluster : Records {
  explicit Cluster(const std::string& hosts, int count) {
    add_cluster(hosts);
    run_well(add("earlier", count));
  }

  bool claim(const JobRecord& job) { return store.claim(job.id, kSomebody).value().has_value(); }

  // The job gets its nodes, reaches all of them, and ends.
  void run_well(const JobRecord& job) {
    REQUIRE(claim(job));
    reach(job, true);
    REQUIRE(store.end(job.id, {ExecutionState::kSucceeded, 0, 0, {}}).ok());
  }

  void reach(const JobRecord& job, bool has_logged_in) {
    std::vector<JobNode> nodes;
    for (const std::string& name : nodes_of(job)) {
      nodes.push_back({name, "10.0.0.1"});
    }
    REQUIRE(store.set_addresses(job.id, nodes, has_logged_in).ok());
  }

  // The job gets its nodes, and reaches none of them.
  PutBack fail(const JobRecord& job, Code code = kSilent) {
    REQUIRE(claim(job));
    Unreached unreached;
    for (const std::string& name : nodes_of(job)) {
      unreached.hosts.push_back({name, name + ": no", code});
    }
    return store.put_back(job.id, unreached).value();
  }
};

}  // namespace

TEST_CASE("a job that reaches no node at all keeps none from others, and tries the others once") {
  Cluster cluster("a,b,c,d", 4);
  const auto wrong = cluster.add("wrong", 2);
  const auto good = cluster.add("good", 4);
  CHECK(cluster.fail(wrong) == PutBack::kWaits);
  CHECK(cluster.states() == std::vector<S>(4, S::kIdle));
  REQUIRE(cluster.claim(wrong));
  CHECK(cluster.nodes_of(wrong) == Names{"c", "d"});
  CHECK(cluster.store.put_back(wrong.id, {{{"c", "c: no"}, {"d", "d: no"}}, false}).value() == PutBack::kWaits);
  CHECK(cluster.store.clusters().next_idle_ms("lab", wrong.id).value() == cluster.now + kFirstUnusableMs);
  CHECK_FALSE(cluster.claim(wrong));

  // Others get all nodes, and so it is known that the job itself is wrong when it fails there again.
  CHECK(cluster.states() == std::vector<S>(4, S::kIdle));
  cluster.run_well(good);
  cluster.now += kFirstUnusableMs;
  CHECK(cluster.fail(wrong) == PutBack::kIsWrong);
  REQUIRE(cluster.store.end(wrong.id, {ExecutionState::kFailed, {}, 241, {}}).ok());
  CHECK(cluster.store.clusters().avoided().of(wrong.id).value().empty());
}

TEST_CASE("a job whose own ssh configuration cannot be read fails at once") {
  Cluster cluster("a,b", 2);
  CHECK(cluster.fail(cluster.add("unread"), Code::kInvalid) == PutBack::kIsWrong);
}

TEST_CASE("where a job reaches a node, those that it could not reach are at fault") {
  Cluster cluster("a,b,c", 3);
  const auto job = cluster.add("job");
  REQUIRE(cluster.fail(job) == PutBack::kWaits);
  REQUIRE(cluster.claim(job));
  CHECK(cluster.nodes_of(job) == Names{"b"});
  SUBCASE("in a later attempt") {
    cluster.reach(job, true);
    CHECK(cluster.states() == std::vector<S>{S::kUnusable, S::kPreparing, S::kIdle});
    CHECK(cluster.store.clusters().find("lab").value().nodes[0].health.why == "a: no");
    CHECK(cluster.store.clusters().avoided().of(job.id).value().empty());
  }
  SUBCASE("but not where the node is this machine, which needs no login") {
    cluster.reach(job, false);
    CHECK(cluster.states() == std::vector<S>{S::kIdle, S::kPreparing, S::kIdle});
  }
  SUBCASE("nor where another job has reached them meanwhile") {
    const auto other = cluster.add("other");
    cluster.run_well(other);
    cluster.reach(job, true);
    CHECK(cluster.states() == std::vector<S>{S::kIdle, S::kPreparing, S::kIdle});
  }
  SUBCASE("nor where the user has said that they are back") {
    REQUIRE(cluster.store.clusters().set_drained("lab", {"a"}, false).ok());
    cluster.reach(job, true);
    CHECK(cluster.states() == std::vector<S>{S::kIdle, S::kPreparing, S::kIdle});
  }
}

TEST_CASE("a job that is refused by one node goes on elsewhere, and fails where the next refuses it too") {
  Cluster cluster("a,b", 2);
  const auto job = cluster.add("job");
  REQUIRE(cluster.fail(job, Code::kAuth) == PutBack::kWaits);
  SUBCASE("it is let in") {
    cluster.run_well(job);
    CHECK(cluster.states() == std::vector<S>{S::kUnusable, S::kIdle});
  }
  SUBCASE("it is not") {
    CHECK(cluster.fail(job, Code::kAuth) == PutBack::kIsWrong);
    CHECK(cluster.states() == std::vector<S>{S::kIdle, S::kPreparing});  // whoever asked ends it
  }
}

TEST_CASE("a job that reaches no node waits each time longer") {
  Cluster cluster("a", 1);
  const auto job = cluster.add("job");
  for (const int minutes : {1, 2, 4, 8, 16, 32, 60, 60}) {
    REQUIRE(cluster.fail(job) == PutBack::kWaits);
    CHECK(cluster.store.clusters().next_idle_ms("lab", job.id).value() == cluster.now + minutes * 60'000);
    cluster.now += minutes * 60'000 - 1;
    CHECK_FALSE(cluster.claim(job));
    cluster.now += 1;
  }
}

}  // namespace hvd::launch::avoided_nodes_test
