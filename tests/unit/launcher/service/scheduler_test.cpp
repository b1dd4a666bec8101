#include "launcher/service/scheduler.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

namespace hvd::launch::scheduler_test {
namespace {

std::vector<ScheduledNode> idle_nodes(int count) {
  return std::vector<ScheduledNode>(static_cast<std::size_t>(count), ScheduledNode{true, true});
}

}  // namespace

TEST_CASE("jobs start by priority, then in the order in which they came") {
  const std::vector<WaitingJob> jobs = {{1, 1, 0}, {2, 1, 5}, {3, 1, 0}, {4, 1, -5}};
  CHECK(plan_starts(jobs, idle_nodes(2)) == std::vector<Start>{{2, {0}}, {1, {1}}});
  CHECK(plan_starts(jobs, idle_nodes(9)) == std::vector<Start>{{2, {0}}, {1, {1}}, {3, {2}}, {4, {3}}});
  CHECK(plan_starts(jobs, {}).empty());
}

TEST_CASE("a job that waits for many nodes is not overtaken, one that can never have them is passed over") {
  auto nodes = idle_nodes(4);
  nodes[0].is_idle = false;
  CHECK(plan_starts({{1, 4, 0}, {2, 1, 0}}, nodes).empty());
  CHECK(plan_starts({{1, 5, 0}, {2, 1, 0}}, nodes) == std::vector<Start>{{2, {1}}});
  nodes[0].is_in_service = false;
  CHECK(plan_starts({{1, 4, 0}, {2, 3, 0}}, nodes) == std::vector<Start>{{2, {1, 2, 3}}});
  nodes[1].is_in_service = false;
  CHECK(plan_starts({{1, 3, 0}, {2, 2, 0}}, nodes) == std::vector<Start>{{2, {2, 3}}});
  CHECK(plan_starts({{1, 0, 0}, {2, -1, 0}}, nodes).empty());
}

TEST_CASE("a job gets no node that it avoids, and others do") {
  WaitingJob wide{1, 2, 0};
  wide.avoided = {0, 1};
  CHECK(plan_starts({wide, {2, 1, 0}}, idle_nodes(4)) == std::vector<Start>{{1, {2, 3}}, {2, {0}}});
  CHECK(plan_starts({wide, {2, 1, 0}}, idle_nodes(3)) == std::vector<Start>{{2, {0}}});  // it is passed over
  // It waits for a node, and what it avoids is kept for nobody.
  auto nodes = idle_nodes(4);
  nodes[3].is_idle = false;
  CHECK(plan_starts({wide, {2, 2, 0}, {3, 1, 0}}, nodes) == std::vector<Start>{{2, {0, 1}}});
  CHECK(plan_starts({wide}, nodes, {{7, 0, 2}}).empty());
  WaitingJob elastic{1, 1, 0, 4};
  elastic.avoided = {2};
  CHECK(plan_starts({elastic}, idle_nodes(4)) == std::vector<Start>{{1, {0, 1, 3}}});
}

TEST_CASE("an elastic job starts with its least, and gets more when nobody waits") {
  CHECK(plan_starts({{1, 1, 0, 3}}, idle_nodes(4)) == std::vector<Start>{{1, {0, 1, 2}}});
  CHECK(plan_starts({{1, 2, 0, 3}}, idle_nodes(1)).empty());
  // The second one's least comes before what is more than the first one's.
  CHECK(plan_starts({{1, 1, 0, 3}, {2, 2, 0}}, idle_nodes(3)) == std::vector<Start>{{1, {0}}, {2, {1, 2}}});
  // A job that waits for nodes keeps what is idle from growing jobs, one that can never start does not.
  CHECK(plan_starts({{1, 1, 0, 3}, {2, 3, 0}}, idle_nodes(3), {{7, 0, 2}}) == std::vector<Start>{{1, {0}}});
  CHECK(plan_starts({{2, 4, 0}}, idle_nodes(3), {{7, 0, 2}}) == std::vector<Start>{{7, {0, 1}}});
}

TEST_CASE("nodes that nobody waits for go to elastic jobs by priority, then by age, up to their most") {
  CHECK(plan_starts({}, idle_nodes(3), {{7, 0, 2}, {6, 0, 0}, {8, 5, 2}}) == std::vector<Start>{{8, {0, 1}}, {7, {2}}});
  CHECK(plan_starts({{9, 1, 0, 2}}, idle_nodes(4), {{7, 0, 9}}) == std::vector<Start>{{9, {0}}, {7, {1, 2, 3}}});
  CHECK(plan_starts({}, idle_nodes(2), {{7, 0, -1}}).empty());
}

TEST_CASE("no plan gives a node twice, and none gives one that is not idle") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<ScheduledNode> nodes;
    for (auto i = random() % 8; i > 0; --i) {
      nodes.push_back({random() % 3 != 0, random() % 5 != 0});
    }
    std::vector<WaitingJob> jobs;
    for (auto i = random() % 6; i > 0; --i) {
      jobs.push_back({static_cast<std::int64_t>(i), static_cast<int>(random() % 5), static_cast<int>(random() % 3)});
    }
    std::vector<int> given(nodes.size());
    for (const Start& start : plan_starts(jobs, nodes)) {
      const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const WaitingJob& j) { return j.id == start.id; });
      REQUIRE(job != jobs.end());
      CHECK(static_cast<int>(start.nodes.size()) == job->node_count);
      for (const int node : start.nodes) {
        const auto at = static_cast<std::size_t>(node);
        CHECK((nodes.at(at).is_idle && nodes.at(at).is_in_service));
        CHECK(++given.at(at) == 1);
      }
    }
  }
}

TEST_CASE("priorities are words or the numbers of 2017") {
  CHECK(priority_of("low") < priority_of("normal"));
  CHECK(priority_of("normal") < priority_of("high"));
  CHECK(priority_of("-17") == -17);
  CHECK(priority_of("999999999999") == 0);
  CHECK(priority_of("5000") == 1000);
}

}  // namespace hvd::launch::scheduler_test
