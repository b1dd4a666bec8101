// The coordinator, where ranks send bits for what they know and messages for the rest.
#include <doctest/doctest.h>

#include "runtime/coordinate/bit_requests.h"
#include "runtime/coordinate/coordinator.h"
#include "runtime/coordinate/pending_ops.h"

namespace hvd::coordinator_known_test {
namespace {

Request tensor_named(const std::string& name, std::int64_t count = 4) {
  Request request;
  request.kind = OpKind::kAllreduce;
  request.dtype = Dtype::kFloat32;
  request.name = name;
  request.shape = {count};
  return request;
}

Request join_request() {
  Request join;
  join.kind = OpKind::kJoin;
  join.name = kJoinName;
  return join;
}

struct Table {
  const int size;
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  Coordinator coordinator;

  explicit Table(std::size_t capacity = 8, int ranks = 2)
      : size(ranks), coordinator(*loop, {size, 1000, Duration::zero(), true, AutotuneOptions(), capacity}) {}

  Result<void> ask(int rank, Request request) { return coordinator.add(rank, std::move(request)); }
  Result<void> ask_bit(int rank, int position, std::uint64_t changes) {
    KnownBits known;
    known.changes = changes;
    known.bits.set(position);
    return coordinator.add_known(rank, known);
  }
  void learn(const std::string& name) {
    for (int rank = 0; rank < size; ++rank) {
      REQUIRE(ask(rank, tensor_named(name)).ok());
    }
  }
  // What is decided, as text: "hits 0,2; remember b@1; do a,b;"
  std::string decide() {
    std::string text;
    for (const Coordinator::Decision& decision : coordinator.decide()) {
      decision.hits.bits.for_each([&](int position) { text += "hit " + std::to_string(position) + ";"; });
      for (const Remembered& news : decision.news) {
        text += news.name + "@" + std::to_string(news.position) + ";";
      }
      for (const Response& response : decision.responses) {
        text += response.is_error() ? "error" : "do";
        for (const std::string& name : response.names) {
          text += " " + name;
        }
        text += ";";
      }
    }
    return text;
  }
};

}  // namespace

TEST_CASE("what was asked for by message once is asked for by bits from then on") {
  Table table;
  table.learn("a");
  table.learn("b");
  CHECK(table.decide() == "a@0;b@1;do a b;");
  REQUIRE(table.ask_bit(0, 0, 2).ok());
  CHECK(table.decide() == "");
  REQUIRE(table.ask_bit(1, 0, 2).ok());
  CHECK(table.decide() == "hit 0;");
  CHECK_FALSE(table.coordinator.has_incomplete());
}

TEST_CASE("of a tensor that some know and others have changed, all are told what differs") {
  Table table;
  table.learn("a");
  table.decide();
  REQUIRE(table.ask_bit(0, 0, 1).ok());
  REQUIRE(table.ask(1, tensor_named("a", 9)).ok());
  CHECK(table.decide() == "error a;");
  // And the other way round.
  REQUIRE(table.ask(1, tensor_named("a", 9)).ok());
  REQUIRE(table.ask_bit(0, 0, 1).ok());
  CHECK(table.decide() == "error a;");
  // Where all have changed it, it is known as what it is now.
  REQUIRE(table.ask(1, tensor_named("a", 9)).ok());
  REQUIRE(table.ask(0, tensor_named("a", 9)).ok());
  CHECK(table.decide() == "a@0;do a;");
}

TEST_CASE("a message for what is known is as good as a bit") {
  Table table;
  table.learn("a");
  table.decide();
  REQUIRE(table.ask_bit(0, 0, 1).ok());
  REQUIRE(table.ask(1, tensor_named("a")).ok());
  CHECK(table.decide() == "a@0;do a;");
}

TEST_CASE("a bit that is older than the position's content is passed over") {
  Table table(1);
  table.learn("a");
  table.decide();
  table.learn("b");
  CHECK(table.decide() == "b@0;do b;");
  REQUIRE(table.ask_bit(1, 0, 1).ok());  // means a
  REQUIRE(table.ask_bit(0, 0, 2).ok());
  CHECK(table.decide() == "");
  REQUIRE(table.ask_bit(1, 0, 2).ok());
  CHECK(table.decide() == "hit 0;");
}

TEST_CASE("a position is not given away before those who asked for it by their bits have their answer") {
  Table table(1);
  table.learn("a");
  table.decide();
  REQUIRE(table.ask_bit(0, 0, 1).ok());
  REQUIRE(table.ask(1, tensor_named("a", 9)).ok());  // a mismatch
  table.learn("b");
  CHECK(table.decide() == "error a;do b;");
  table.learn("b");
  CHECK(table.decide() == "b@0;do b;");
}

TEST_CASE("what cannot be known is no bit of a rank that keeps to the rules") {
  Table table;
  CHECK_FALSE(table.ask_bit(1, 0, 0).ok());
  table.learn("a");
  table.decide();
  CHECK_FALSE(table.ask_bit(1, 1, 1).ok());
  CHECK_FALSE(table.ask_bit(1, 0, 2).ok());
  REQUIRE(table.ask_bit(1, 0, 1).ok());
  CHECK_FALSE(table.ask_bit(1, 0, 1).ok());
}

TEST_CASE("a stall is told of what is asked for by bits, too") {
  Table table(8, 3);
  table.learn("a");
  table.decide();
  REQUIRE(table.ask(0, tensor_named("z")).ok());
  REQUIRE(table.ask_bit(1, 0, 1).ok());
  CHECK(table.coordinator.has_incomplete());
  const auto incomplete = table.coordinator.incomplete();
  REQUIRE(incomplete.size() == 2);
  CHECK(incomplete[0].what == "ALLREDUCE 'z'");
  CHECK(incomplete[1].what == "ALLREDUCE 'a'");
  CHECK(incomplete[1].missing == std::vector<int>{0, 2});
  // It does not become younger when another rank asks for it by message.
  REQUIRE(table.ask(2, tensor_named("a")).ok());
  const auto still = table.coordinator.incomplete();
  REQUIRE(still.size() == 2);
  CHECK(still[1].serial == incomplete[1].serial);
  CHECK(still[1].missing == std::vector<int>{0});
}

TEST_CASE("when a rank joins, what others ask for by bits is done without it") {
  Table table;
  table.learn("a");
  table.learn("b");
  table.decide();
  const Request join = join_request();
  REQUIRE(table.ask_bit(0, 0, 2).ok());
  REQUIRE(table.ask(1, join).ok());
  CHECK(table.decide() == "do a;");
  REQUIRE(table.ask_bit(0, 1, 2).ok());
  CHECK(table.decide() == "do b;");
  REQUIRE(table.ask(0, join).ok());
  CHECK(table.decide() == "do join;");
  REQUIRE(table.ask_bit(0, 1, 2).ok());
  REQUIRE(table.ask_bit(1, 1, 2).ok());
  CHECK(table.decide() == "hit 1;");
}

TEST_CASE("of what is ready at once the highest priority goes first") {
  Table table(0);
  int number = 0;
  for (const int priority : {0, 5, -3, 5}) {
    Request request = tensor_named("t" + std::to_string(number++));
    request.shape = {1000};  // each goes alone
    request.priority = priority;
    REQUIRE(table.ask(0, request).ok());
    REQUIRE(table.ask(1, request).ok());
  }
  CHECK(table.decide() == "do t1;do t3;do t0;do t2;");
}

TEST_CASE("a join comes after all that was asked for before it, whatever its priority and its set") {
  Table table(8, 3);
  Request add;
  add.kind = OpKind::kSetAdd;
  add.name = "add";
  add.numbers = {1, 2};
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(table.ask(rank, add).ok());
  }
  CHECK(table.decide() == "do add;");
  Request late = tensor_named("late");
  late.priority = -1;
  REQUIRE(table.ask(0, late).ok());
  REQUIRE(table.ask(0, join_request()).ok());
  Request in_set = tensor_named("in set");
  in_set.process_set = 1;
  REQUIRE(table.ask(1, in_set).ok());
  REQUIRE(table.ask(1, join_request()).ok());
  CHECK(table.decide() == "");
  REQUIRE(table.ask(2, join_request()).ok());  // makes both complete
  CHECK(table.decide() == "do in set;do late;do join;");
}

TEST_CASE("the join of a rank whose bit came too late waits until it has asked again") {
  Table table(1);
  table.learn("a");
  table.decide();
  table.learn("b");
  CHECK(table.decide() == "b@0;do b;");
  REQUIRE(table.ask_bit(1, 0, 1).ok());  // means a
  REQUIRE(table.ask(1, join_request()).ok());
  REQUIRE(table.ask(0, tensor_named("a")).ok());
  CHECK(table.decide() == "");  // not yet done without rank 1
  CHECK_FALSE(table.ask(1, tensor_named("c")).ok());
  Request again = tensor_named("a");
  again.is_again = true;
  REQUIRE(table.ask(1, again).ok());
  CHECK(table.decide() == "a@0;do a;");
  CHECK_FALSE(table.ask(1, again).ok());  // it was late only once
  REQUIRE(table.ask(0, join_request()).ok());
  CHECK(table.decide() == "do join;");
}

TEST_CASE("a rank marks what it asks for again") {
  Activity activity(1);
  const auto queue = SubmitQueue::create(activity).value();
  SetTable sets;
  PendingOps pending(*queue, sets, 1);
  BitRequests bits(0, 2);
  const auto ask = [&](const std::string& name) {
    OpRef op = queue->get_op();
    op->what.kind = OpKind::kAllreduce;
    op->what.name = name;
    op->what.shape = {4};
    return pending.add(std::move(op));
  };
  const auto remember = [&](const std::string& name) {
    Remembered what;
    what.name = name;
    return bits.remember(std::span(&what, 1), pending).value();
  };
  PendingOp* const a = ask("a");
  CHECK(remember("a").empty());
  REQUIRE(bits.ask(std::span(&a, 1)));
  ask("b");
  const std::vector<Request> again = remember("b");
  REQUIRE(again.size() == 1);
  CHECK(again.front().name == "a");
  CHECK(again.front().is_again);
}

TEST_CASE("a set is not removed while a rank has to ask again for what it asked for too late") {
  Table table(1, 3);
  Request add;
  add.kind = OpKind::kSetAdd;
  add.name = "add";
  add.numbers = {0, 1};
  Request remove = add;
  remove.kind = OpKind::kSetRemove;
  remove.name = "remove";
  remove.numbers = {1};
  const auto ask_all = [&table](const Request& request) {
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(table.ask(rank, request).ok());
    }
  };
  ask_all(add);
  table.decide();
  for (const char* name : {"a", "b"}) {
    Request request = tensor_named(name);
    request.process_set = 1;
    REQUIRE(table.ask(0, request).ok());
    REQUIRE(table.ask(1, request).ok());
    table.decide();
  }
  KnownBits late;
  late.process_set = 1;
  late.changes = 1;
  late.bits.set(0);
  REQUIRE(table.coordinator.add_known(1, late).ok());  // means a
  ask_all(remove);
  CHECK(table.decide() == "error remove;");
  for (const int rank : {1, 0}) {
    Request again = tensor_named("a");
    again.process_set = 1;
    again.is_again = rank == 1;
    REQUIRE(table.ask(rank, again).ok());
  }
  CHECK(table.decide() == "a@0;do a;");
  ask_all(remove);
  CHECK(table.decide() == "do remove;");
}

}  // namespace hvd::coordinator_known_test
