// The negotiator, where only some of a set's ranks ask for a name.
#include <doctest/doctest.h>

#include "runtime/controller/negotiator.h"

namespace hvd::negotiator_askers_test {
namespace {

const std::vector<int> kAskers = {1, 3};

Request set_by_members() {
  Request request;
  request.kind = OpKind::kSetAdd;
  request.name = "set";
  request.numbers = kAskers;
  request.by_members = true;
  return request;
}

Request join() {
  Request request;
  request.kind = OpKind::kJoin;
  request.name = kJoinName;
  return request;
}

}  // namespace

TEST_CASE("what only some ask for is ready when they have, whoever else has joined") {
  for (const bool has_joined : {false, true}) {
    CAPTURE(has_joined);
    Negotiator negotiator(4);
    if (has_joined) {
      REQUIRE(negotiator.add(0, join()).ok());
    }
    REQUIRE(negotiator.add(3, set_by_members(), &kAskers).ok());
    CHECK_FALSE(negotiator.has_ready());
    REQUIRE(negotiator.unfinished().size() == 1);
    CHECK(negotiator.unfinished()[0].missing == std::vector<int>{1});
    REQUIRE(negotiator.add(2, join()).ok());  // which it does not wait for
    CHECK_FALSE(negotiator.has_ready());
    REQUIRE(negotiator.add(1, set_by_members(), &kAskers).ok());
    const auto ready = negotiator.take();
    REQUIRE(ready.size() == 1);
    CHECK(ready[0].error.empty());
    CHECK_FALSE(ready[0].is_missed);
    CHECK(ready[0].request == set_by_members());
    CHECK_FALSE(negotiator.is_busy());
  }
}

TEST_CASE("of those who ask none may have joined, or ask twice") {
  Negotiator negotiator(4);
  REQUIRE(negotiator.add(3, set_by_members(), &kAskers).ok());
  CHECK_FALSE(negotiator.add(3, set_by_members(), &kAskers).ok());
  REQUIRE(negotiator.add(1, join()).ok());
  const auto ready = negotiator.take();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].error.find("rank 1 has joined") != std::string::npos);
}

}  // namespace hvd::negotiator_askers_test
