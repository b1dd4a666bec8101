#include "runtime/coordinate/coordinator.h"

#include <doctest/doctest.h>

#include "tests/support/still_clock.h"

namespace hvd::coordinator_test {
namespace {

Request tensor_named(const char* name) {
  Request request;
  request.kind = OpKind::kAllreduce;
  request.dtype = Dtype::kFloat32;
  request.name = name;
  request.shape = {4};
  return request;
}

struct Table {
  test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  Coordinator coordinator;

  explicit Table(Duration window = std::chrono::milliseconds(10)) : coordinator(*loop, {2, 1000, window}) {}

  void ask(int rank, const char* name) { REQUIRE(coordinator.add(rank, tensor_named(name)).ok()); }
  // One turn of the engine: what is decided, as text.
  std::string turn() {
    REQUIRE(loop->turn(Deadline(clock.now())).ok());
    std::string text;
    for (const Coordinator::Decision& decision : coordinator.decide()) {
      for (const Response& response : decision.responses) {
        for (const std::string& name : response.names) {
          text += name;
        }
        text += ";";
      }
    }
    return text;
  }
};

}  // namespace

TEST_CASE("when all that is known is complete, nobody waits") {
  Table table;
  table.ask(0, "a");
  CHECK(table.turn() == "");
  table.ask(1, "a");
  CHECK(table.turn() == "a;");
  CHECK(table.turn() == "");
}

TEST_CASE("a tensor that others are on their way with is waited for, so that both travel together") {
  Table table;
  table.ask(0, "a");
  table.ask(0, "b");
  table.ask(1, "a");
  CHECK(table.turn() == "");
  table.ask(1, "b");
  CHECK(table.turn() == "ab;");
}

TEST_CASE("the wait ends with the window, and a late tensor is waited for once only") {
  Table table;
  table.ask(0, "late");
  table.ask(0, "a");
  table.ask(1, "a");
  CHECK(table.turn() == "");
  table.clock.advance(std::chrono::milliseconds(9));
  CHECK(table.turn() == "");
  table.clock.advance(std::chrono::milliseconds(1));
  CHECK(table.turn() == "a;");
  table.ask(0, "b");
  table.ask(1, "b");
  CHECK(table.turn() == "b;");
  table.ask(1, "late");
  CHECK(table.turn() == "late;");
}

TEST_CASE("without a window whatever is ready goes at once") {
  Table table(Duration::zero());
  table.ask(0, "late");
  table.ask(0, "a");
  table.ask(1, "a");
  CHECK(table.turn() == "a;");
}

}  // namespace hvd::coordinator_test
