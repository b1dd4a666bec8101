#include "runtime/coordinate/answer_calls.h"

#include <doctest/doctest.h>

#include "runtime/coordinate/coordinator.h"
#include "tests/support/still_clock.h"

namespace hvd::answer_calls_test {
namespace {

using namespace std::chrono_literals;

// Three nodes: ranks 0 and 1, rank 2, and ranks 3 and 4.
RankMap three_nodes() {
  RankMap map;
  map.size = 5;
  map.node_count = 3;
  map.node_of_rank = {0, 0, 1, 2, 2};
  return map;
}

struct Table {
  test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  Coordinator coordinator{*loop, {5, 1000, 10ms}};
  RankMap map = three_nodes();
  AnswerCalls calls{map};

  bool call(int rank, std::uint64_t round) {
    return calls.note(rank, {0, round, OpKind::kAllreduce, "x"}, clock.now());
  }
  void ask(int rank) {
    Request request;
    request.name = "x";
    request.kind = OpKind::kAllreduce;
    request.dtype = Dtype::kFloat32;
    request.shape = {4};
    REQUIRE(coordinator.add(rank, request).ok());
  }
  // "ALLREDUCE 'x' 2 3 4; "
  std::string incomplete() {
    std::vector<Incomplete> all = coordinator.incomplete();
    calls.add_to(all, coordinator, clock.now());
    std::string text;
    for (const Incomplete& one : all) {
      text += one.what;
      for (const int rank : one.missing) {
        text += " " + std::to_string(rank);
      }
      text += "; ";
    }
    return text;
  }
};

}  // namespace

TEST_CASE("the leaders of a set are the first of its ranks on each node") {
  Table table;
  CHECK(table.calls.leaders_among({0, 1, 2, 3, 4}) == std::vector<int>{0, 2, 3});
  CHECK(table.calls.leaders_among({1, 4}) == std::vector<int>{1, 4});
}

TEST_CASE("a call is passed on once in a while, however many make it") {
  Table table;
  CHECK(table.call(0, 7));
  CHECK(!table.call(2, 7));
  CHECK(table.call(2, 8));
  table.clock.advance(50ms);
  CHECK(!table.call(0, 7));
  table.clock.advance(50ms);
  CHECK(table.call(2, 7));
  CHECK(!table.call(0, 7));
}

TEST_CASE("what leaders wait with is incomplete, for want of the nodes whose leaders do not call") {
  Table table;
  CHECK(!table.calls.has_any(table.clock.now()));
  table.call(0, 7);
  CHECK(table.calls.has_any(table.clock.now()));
  CHECK(table.incomplete() == "ALLREDUCE 'x' 2 3 4; ");
  table.call(2, 7);
  CHECK(table.incomplete() == "ALLREDUCE 'x' 3 4; ");
  table.call(3, 7);
  CHECK(table.incomplete() == "");
}

TEST_CASE("ranks that wait in a round are not missing where others have asked the coordinator") {
  Table table;
  table.ask(4);  // the leader of its node has not come
  CHECK(table.incomplete() == "ALLREDUCE 'x' 0 1 2 3; ");
  table.call(0, 7);
  table.call(2, 7);
  CHECK(table.incomplete() == "ALLREDUCE 'x' 3; ");
}

TEST_CASE("who calls no more waits no more") {
  Table table;
  table.call(0, 7);
  table.clock.advance(1900ms);
  table.call(2, 7);
  CHECK(table.incomplete() == "ALLREDUCE 'x' 3 4; ");
  table.clock.advance(1900ms);
  CHECK(table.incomplete() == "ALLREDUCE 'x' 0 1 3 4; ");
  table.clock.advance(1900ms);
  CHECK(table.incomplete() == "");
  CHECK(!table.calls.has_any(table.clock.now()));
}

}  // namespace hvd::answer_calls_test
