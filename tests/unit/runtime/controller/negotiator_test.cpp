#include "runtime/controller/negotiator.h"

#include <algorithm>
#include <functional>
#include <random>

#include <doctest/doctest.h>

namespace hvd::negotiator_test {
namespace {

Request allreduce(std::string name, std::vector<std::int64_t> shape = {2}) {
  Request request;
  request.kind = OpKind::kAllreduce;
  request.dtype = Dtype::kFloat32;
  request.name = std::move(name);
  request.shape = std::move(shape);
  return request;
}

Request of_kind(OpKind kind, std::vector<std::int64_t> shape) {
  Request request = allreduce("x", std::move(shape));
  request.kind = kind;
  return request;
}

// Two ranks' requests for one name; what comes out.
Ready settle(const Request& a, const Request& b, bool reversed = false) {
  Negotiator negotiator(2);
  if (reversed) {
    REQUIRE(negotiator.add(1, b).ok());
    REQUIRE(negotiator.add(0, a).ok());
  } else {
    REQUIRE(negotiator.add(0, a).ok());
    REQUIRE(negotiator.add(1, b).ok());
  }
  auto ready = negotiator.take();
  REQUIRE(ready.size() == 1);
  return ready.front();
}

Request group_of(OpKind kind, const std::vector<std::string>& names) {
  Request request = of_kind(kind, {2});
  for (const std::string& name : names) {
    request.group.push_back({name, Dtype::kFloat32, {3}});
  }
  return request;
}

struct Mismatch {
  Request a;
  Request b;
  const char* text;
};

std::vector<Mismatch> mismatches() {
  const Request x = allreduce("x");
  std::vector<Mismatch> all;
  const auto add = [&](const Request& a, const std::function<void(Request&)>& change, const char* text) {
    Request b = a;
    change(b);
    all.push_back({a, b, text});
  };
  add(
      x, [](Request& r) { r.shape = {3}; },
      "Mismatched ALLREDUCE tensor shapes: rank 0 sent a tensor of shape [2], but rank 1 sent a tensor of shape [3] "
      "(tensor 'x')");
  add(
      x, [](Request& r) { r.shape = {2, 1}; },
      "Mismatched ALLREDUCE tensor shapes: rank 0 sent a tensor of shape [2], but rank 1 sent a tensor of shape [2, 1] "
      "(tensor 'x')");
  add(
      x, [](Request& r) { r.dtype = Dtype::kFloat64; },
      "Mismatched data types: rank 0 had type float32, but rank 1 had type float64 (tensor 'x')");
  add(
      x, [](Request& r) { r.op = ReduceOp::kMax; },
      "Mismatched reduction operation: rank 0 sent reduction op SUM, but rank 1 sent reduction op MAX (tensor 'x')");
  add(
      x, [](Request& r) { r.prescale = 0.5; },
      "Mismatched prescale and/or postscale factors: rank 0 sent prescale 1 and postscale 1, but rank 1 sent prescale "
      "0.5 and postscale 1 (tensor 'x')");
  add(
      x, [](Request& r) { r.postscale = 2.0; },
      "Mismatched prescale and/or postscale factors: rank 0 sent prescale 1 and postscale 1, but rank 1 sent prescale "
      "1 and postscale 2 (tensor 'x')");
  add(
      x, [](Request& r) { r.kind = OpKind::kAllgather; },
      "Mismatched operations: rank 0 did ALLREDUCE, but rank 1 did ALLGATHER (tensor 'x')");
  add(
      of_kind(OpKind::kBroadcast, {2}), [](Request& r) { r.root_rank = 1; },
      "Mismatched BROADCAST root ranks: rank 0 specified root rank 0, but rank 1 specified root rank 1 (tensor 'x')");
  add(
      of_kind(OpKind::kBroadcast, {2}), [](Request& r) { r.shape = {}; },
      "Mismatched BROADCAST tensor shapes: rank 0 sent a tensor of shape [2], but rank 1 sent a tensor of shape [] "
      "(tensor 'x')");
  add(
      of_kind(OpKind::kAllgather, {2, 3}), [](Request& r) { r.shape = {2, 4}; },
      "Mismatched ALLGATHER tensor shapes: rank 0 sent a tensor of shape [2, 3], but rank 1 sent a tensor of shape "
      "[2, 4] (tensor 'x'); only their first dimension may differ");
  add(
      of_kind(OpKind::kAllgather, {2, 3}), [](Request& r) { r.shape = {6}; },
      "Mismatched ALLGATHER tensor shapes: rank 0 sent a tensor of shape [2, 3], but rank 1 sent a tensor of shape [6] "
      "(tensor 'x'); only their first dimension may differ");
  add(
      of_kind(OpKind::kAllgather, {2}), [](Request& r) { r.shape = {}; },
      "Mismatched ALLGATHER tensor shapes: rank 0 sent a tensor of shape [2], but rank 1 sent a tensor of shape [] "
      "(tensor 'x'); only their first dimension may differ");
  add(
      of_kind(OpKind::kReducescatter, {2, 3}), [](Request& r) { r.shape = {3, 3}; },
      "Mismatched REDUCESCATTER tensor shapes: rank 0 sent a tensor of shape [2, 3], but rank 1 sent a tensor of shape "
      "[3, 3] (tensor 'x')");
  add(
      of_kind(OpKind::kAlltoall, {2, 3}), [](Request& r) { r.shape = {4, 4}; },
      "Mismatched ALLTOALL tensor shapes: rank 0 sent a tensor of shape [2, 3], but rank 1 sent a tensor of shape "
      "[4, 4] (tensor 'x'); only their first dimension may differ");
  const Request group = group_of(OpKind::kAllreduce, {"y", "z"});
  add(
      group, [](Request& r) { r.group.pop_back(); },
      "Mismatched groups: rank 0 sent a group of 3, but rank 1 sent a group of 2 (tensor 'x')");
  add(
      x, [](Request& r) { r.group = {{"y", Dtype::kFloat32, {3}}}; },
      "Mismatched groups: rank 0 sent a tensor alone, but rank 1 sent a group of 2 (tensor 'x')");
  add(
      group, [](Request& r) { r.group[1].name = "a"; },
      "Mismatched groups: rank 0 has at place 3 of the group 'z', but rank 1 has at place 3 of the group 'a' (tensor "
      "'x')");
  add(
      group, [](Request& r) { r.group[0].shape = {4}; },
      "Mismatched ALLREDUCE tensor shapes: rank 0 sent a tensor of shape [3], but rank 1 sent a tensor of shape [4] "
      "(tensor 'y')");
  add(
      group, [](Request& r) { r.group[0].dtype = Dtype::kInt8; },
      "Mismatched data types: rank 0 had type float32, but rank 1 had type int8 (tensor 'y')");
  add(
      x, [](Request& r) { r.is_device = true; },
      "Mismatched CPU/GPU device selection: rank 0 specified device CPU, but rank 1 specified device GPU (tensor 'x')");
  add(
      group, [](Request& r) { r.group[1].is_device = true; },
      "Mismatched CPU/GPU device selection: rank 0 specified device CPU, but rank 1 specified device GPU (tensor 'z')");
  return all;
}

}  // namespace

TEST_CASE("every disagreement names both ranks and both values, whoever asks first") {
  for (const Mismatch& mismatch : mismatches()) {
    for (const bool reversed : {false, true}) {
      const Ready ready = settle(mismatch.a, mismatch.b, reversed);
      CHECK(ready.error == mismatch.text);
      CHECK(ready.error_code == static_cast<int>(Code::kMismatch));
      CHECK(ready.request.name == "x");
    }
  }
}

TEST_CASE("a disagreement names the lowest ranks that disagree, whatever the order of arrival") {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    Negotiator negotiator(4);
    for (const int rank : order) {
      REQUIRE(negotiator.add(rank, allreduce("x", {rank >= 2 ? 7 : 5})).ok());
    }
    const auto ready = negotiator.take();
    REQUIRE(ready.size() == 1);
    CHECK(ready[0].error ==
          "Mismatched ALLREDUCE tensor shapes: rank 0 sent a tensor of shape [5], but rank 2 sent a tensor of shape "
          "[7] (tensor 'x')");
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("of different priorities the lowest rank's counts, whoever asks first") {
  Request low = allreduce("x");
  low.priority = -3;
  Request high = allreduce("x");
  high.priority = 5;
  for (const bool reversed : {false, true}) {
    CHECK(settle(low, high, reversed).request.priority == -3);
    CHECK(settle(high, low, reversed).request.priority == 5);
  }
}

TEST_CASE("a tensor is ready when all ranks have asked, not before") {
  Negotiator negotiator(3);
  CHECK(negotiator.add(2, allreduce("x")).ok());
  CHECK(negotiator.add(0, allreduce("x")).ok());
  CHECK_FALSE(negotiator.has_ready());
  CHECK(negotiator.take().empty());
  CHECK(negotiator.add(1, allreduce("x")).ok());
  CHECK(negotiator.has_ready());
  const auto ready = negotiator.take();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].request == allreduce("x"));
  CHECK(ready[0].error.empty());
  CHECK_FALSE(negotiator.has_ready());
}

TEST_CASE("the order is that of completion") {
  Negotiator negotiator(2);
  for (const char* name : {"a", "b", "c"}) {
    REQUIRE(negotiator.add(0, allreduce(name)).ok());
  }
  for (const char* name : {"c", "a", "b"}) {
    REQUIRE(negotiator.add(1, allreduce(name)).ok());
  }
  std::string order;
  for (const Ready& ready : negotiator.take()) {
    order += ready.request.name;
  }
  CHECK(order == "cab");
}

Request join() {
  Request request;
  request.kind = OpKind::kJoin;
  request.name = kJoinName;
  return request;
}

TEST_CASE("a rank that has joined holds up nothing: what waits for it becomes ready, in the order of names") {
  Negotiator negotiator(3);
  for (const char* name : {"b", "c", "a"}) {
    for (const int rank : {0, 2}) {
      REQUIRE(negotiator.add(rank, allreduce(name)).ok());
    }
  }
  REQUIRE(negotiator.add(0, allreduce("of rank 0")).ok());
  REQUIRE(negotiator.add(1, join()).ok());
  CHECK_FALSE(negotiator.add(1, allreduce("d")).ok());
  CHECK_FALSE(negotiator.add(1, join()).ok());
  REQUIRE(negotiator.add(2, allreduce("d")).ok());
  REQUIRE(negotiator.add(0, allreduce("d")).ok());
  std::string order;
  for (const Ready& ready : negotiator.take()) {
    order += ready.request.name;
    CHECK(ready.is_missed);
    CHECK(ready.error.empty());
  }
  CHECK(order == "abcd");
  CHECK_FALSE(negotiator.has_fresh_incomplete());
  REQUIRE(negotiator.add(2, join()).ok());
  CHECK(negotiator.take().front().request.name == "of rank 0");
}

TEST_CASE("a join is ready when all have joined, and names the last; then everything is as before") {
  Negotiator negotiator(2);
  for (const int last : {0, 1, 1}) {
    REQUIRE(negotiator.add(1 - last, join()).ok());
    CHECK(negotiator.take().empty());
    REQUIRE(negotiator.add(last, join()).ok());
    const auto ready = negotiator.take();
    REQUIRE(ready.size() == 1);
    CHECK(ready[0].request.kind == OpKind::kJoin);
    CHECK(ready[0].answer == last);
    REQUIRE(negotiator.add(0, allreduce("x")).ok());
    CHECK(negotiator.take().empty());
    REQUIRE(negotiator.add(1, allreduce("x")).ok());
    const auto after = negotiator.take();
    REQUIRE(after.size() == 1);
    CHECK_FALSE(after[0].is_missed);
  }
}

TEST_CASE("what a rank asked for before it joined is its own") {
  Negotiator negotiator(2);
  REQUIRE(negotiator.add(1, of_kind(OpKind::kAllgather, {2})).ok());
  REQUIRE(negotiator.add(1, join()).ok());
  REQUIRE(negotiator.add(0, of_kind(OpKind::kAllgather, {3})).ok());
  const auto ready = negotiator.take();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].error.empty());
  CHECK(ready[0].first_dims == std::vector<std::int64_t>{3, 2});
}

TEST_CASE("only allreduces and barriers go on without a rank that has joined; others fail and say who") {
  for (const auto& [kind, text] :
       {std::pair(OpKind::kAllgather, "Allgather"), std::pair(OpKind::kBroadcast, "Broadcast"),
        std::pair(OpKind::kReducescatter, "Reducescatter"), std::pair(OpKind::kAlltoall, "Alltoall"),
        std::pair(OpKind::kBarrier, "")}) {
    Negotiator negotiator(3);
    REQUIRE(negotiator.add(1, join()).ok());
    for (const int rank : {2, 0}) {
      REQUIRE(negotiator.add(rank, of_kind(kind, {2})).ok());
    }
    const auto ready = negotiator.take();
    REQUIRE(ready.size() == 1);
    const std::string error =
        std::string(text) + " is not supported with Join at this time: rank 1 has joined (tensor 'x')";
    CHECK(ready[0].error == (kind == OpKind::kBarrier ? "" : error));
    CHECK(ready[0].error_code == (kind == OpKind::kBarrier ? 0 : static_cast<int>(Code::kMismatch)));
  }
}

TEST_CASE("ranks that disagree are named also when rank 0 has joined") {
  Negotiator negotiator(4);
  REQUIRE(negotiator.add(0, join()).ok());
  for (const int rank : {3, 1, 2}) {
    REQUIRE(negotiator.add(rank, allreduce("x", {rank == 1 ? 5 : 6})).ok());
  }
  CHECK(negotiator.take().front().error.find("rank 1 sent a tensor of shape [5], but rank 2") != std::string::npos);
}

TEST_CASE("a rank that asks twice is refused, and may ask again once the tensor is taken") {
  Negotiator negotiator(2);
  REQUIRE(negotiator.add(1, allreduce("x")).ok());
  const auto again = negotiator.add(1, allreduce("x"));
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code() == Code::kProtocol);
  CHECK(again.error().message() == "rank 1 asked twice for tensor 'x'");
  REQUIRE(negotiator.add(0, allreduce("x")).ok());
  CHECK(negotiator.add(1, allreduce("x")).ok());
}

TEST_CASE("allgather takes any first dimension and reports all of them") {
  const Ready ready = settle(of_kind(OpKind::kAllgather, {2, 3}), of_kind(OpKind::kAllgather, {0, 3}), true);
  CHECK(ready.error.empty());
  CHECK(ready.first_dims == std::vector<std::int64_t>{2, 0});
}

TEST_CASE("a group is ready as one, with the first dimensions of all its tensors") {
  Request zero = group_of(OpKind::kAllgather, {"y"});
  Request one = zero;
  one.shape = {5};
  one.group[0].shape = {0};
  const Ready ready = settle(zero, one, true);
  CHECK(ready.error.empty());
  CHECK(ready.first_dims == std::vector<std::int64_t>{2, 5, 3, 0});
  CHECK(ready.request.group.front().name == "y");
}

TEST_CASE("a reducescatter of scalars is an error for all") {
  const Ready scalar = settle(of_kind(OpKind::kReducescatter, {}), of_kind(OpKind::kReducescatter, {}));
  CHECK(scalar.error_code == static_cast<int>(Code::kMismatch));
  CHECK(scalar.error.starts_with("REDUCESCATTER of a scalar"));
  CHECK(settle(of_kind(OpKind::kReducescatter, {3}), of_kind(OpKind::kReducescatter, {3})).first_dims.empty());
}

TEST_CASE("an alltoall takes any first dimension, but no scalar") {
  CHECK(settle(of_kind(OpKind::kAlltoall, {3, 2}), of_kind(OpKind::kAlltoall, {0, 2})).error.empty());
  CHECK(
      settle(of_kind(OpKind::kAlltoall, {}), of_kind(OpKind::kAlltoall, {})).error.starts_with("ALLTOALL of a scalar"));
}

TEST_CASE("one scalar in a group of allgathers is an error of the group") {
  Request group = group_of(OpKind::kAllgather, {"y", "z"});
  group.group[1].shape = {};
  const Ready ready = settle(group, group);
  CHECK(ready.error_code == static_cast<int>(Code::kMismatch));
  CHECK(ready.error.find("tensor 'z'") != std::string::npos);
  CHECK(ready.first_dims.empty());
}

TEST_CASE("an allgather of scalars and a root that is no rank are errors for all") {
  const Ready scalar = settle(of_kind(OpKind::kAllgather, {}), of_kind(OpKind::kAllgather, {}));
  CHECK(scalar.error_code == static_cast<int>(Code::kMismatch));
  CHECK(scalar.error.find("scalar") != std::string::npos);
  for (const int root : {-1, 2}) {
    Request request = of_kind(OpKind::kBroadcast, {2});
    request.root_rank = root;
    const Ready ready = settle(request, request);
    CHECK(ready.error_code == static_cast<int>(Code::kInvalid));
    CHECK(ready.error.find("root rank " + std::to_string(root)) != std::string::npos);
  }
}

TEST_CASE("scales are compared by bits: not-a-number agrees with itself, and zero has a sign") {
  Request request = allreduce("x");
  request.prescale = std::numeric_limits<double>::quiet_NaN();
  CHECK(settle(request, request).error.empty());
  Request negative = allreduce("x");
  request.prescale = 0.0;
  negative.prescale = -0.0;
  CHECK_FALSE(settle(request, negative).error.empty());
}

TEST_CASE("only tensors first asked for since the last take are worth waiting for") {
  Negotiator negotiator(2);
  CHECK_FALSE(negotiator.has_fresh_incomplete());
  REQUIRE(negotiator.add(0, allreduce("late")).ok());
  CHECK(negotiator.has_fresh_incomplete());
  negotiator.take();
  CHECK_FALSE(negotiator.has_fresh_incomplete());
  REQUIRE(negotiator.add(0, allreduce("x")).ok());
  CHECK(negotiator.has_fresh_incomplete());
  REQUIRE(negotiator.add(1, allreduce("x")).ok());
  CHECK_FALSE(negotiator.has_fresh_incomplete());
  REQUIRE(negotiator.add(1, allreduce("late")).ok());  // must not count below zero
  CHECK_FALSE(negotiator.has_fresh_incomplete());
  CHECK(negotiator.take().size() == 2);
}

TEST_CASE("any interleaving of ranks makes every tensor ready exactly once") {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const int size = 1 + static_cast<int>(random() % 8);
    const int tensors = 1 + static_cast<int>(random() % 20);
    std::vector<std::pair<int, int>> asks;
    for (int rank = 0; rank < size; ++rank) {
      for (int tensor = 0; tensor < tensors; ++tensor) {
        asks.emplace_back(rank, tensor);
      }
    }
    std::shuffle(asks.begin(), asks.end(), random);
    Negotiator negotiator(size);
    std::vector<std::string> done;
    for (const auto& [rank, tensor] : asks) {
      REQUIRE(negotiator.add(rank, allreduce("t" + std::to_string(tensor))).ok());
      if (random() % 3 == 0) {
        for (const Ready& ready : negotiator.take()) {
          done.push_back(ready.request.name);
        }
      }
    }
    for (const Ready& ready : negotiator.take()) {
      done.push_back(ready.request.name);
    }
    std::sort(done.begin(), done.end());
    CHECK(done.size() == static_cast<std::size_t>(tensors));
    CHECK(std::adjacent_find(done.begin(), done.end()) == done.end());
    CHECK_FALSE(negotiator.has_fresh_incomplete());
  }
}

TEST_CASE("in a set of some ranks these are named as the job names them, and others may ask for nothing") {
  Negotiator negotiator(std::vector<int>{1, 4, 6});
  CHECK(negotiator.add(4, of_kind(OpKind::kAllgather, {40, 2})).ok());
  CHECK(negotiator.add(6, of_kind(OpKind::kAllgather, {60, 2})).ok());
  CHECK(negotiator.is_busy());
  CHECK_FALSE(negotiator.add(0, of_kind(OpKind::kAllgather, {1, 2})).ok());
  CHECK_FALSE(negotiator.has_ready());
  CHECK(negotiator.add(1, of_kind(OpKind::kAllgather, {10, 2})).ok());
  const auto gathered = negotiator.take();
  REQUIRE(gathered.size() == 1);
  CHECK(gathered[0].first_dims == std::vector<std::int64_t>{10, 40, 60});
  CHECK_FALSE(negotiator.is_busy());

  for (const int rank : {6, 1, 4}) {
    CHECK(negotiator.add(rank, allreduce("x", {rank == 4 ? 5 : 3})).ok());
  }
  const auto differs = negotiator.take();
  REQUIRE(differs.size() == 1);
  CHECK(differs[0].error.find("rank 1 sent a tensor of shape [3], but rank 4 sent a tensor of shape [5]") !=
        std::string::npos);

  Request broadcast = of_kind(OpKind::kBroadcast, {2});
  broadcast.root_rank = 2;
  for (const int rank : {1, 4, 6}) {
    CHECK(negotiator.add(rank, broadcast).ok());
  }
  CHECK(negotiator.take()[0].error.find("from root rank 2, but the ranks are 1, 4, 6") != std::string::npos);
}

TEST_CASE("a join that is asked for elsewhere counts in a set, until it is forgotten") {
  Negotiator negotiator(std::vector<int>{0, 2});
  CHECK(negotiator.add(0, allreduce("x")).ok());
  negotiator.note_join(1);
  CHECK_FALSE(negotiator.has_ready());
  negotiator.note_join(2);
  CHECK(negotiator.take().at(0).is_missed);
  negotiator.forget_joins();
  CHECK(negotiator.add(0, allreduce("x")).ok());
  CHECK_FALSE(negotiator.has_ready());
  CHECK(negotiator.add(2, allreduce("x")).ok());
  CHECK_FALSE(negotiator.take().at(0).is_missed);
}

}  // namespace hvd::negotiator_test
