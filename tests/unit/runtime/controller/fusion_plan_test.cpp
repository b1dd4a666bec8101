#include "runtime/controller/fusion_plan.h"

#include <cstdint>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "runtime/core/shape.h"

namespace hvd::fusion_plan_test {
namespace {

Ready tensor(std::string name, std::int64_t floats, Dtype dtype = Dtype::kFloat32) {
  Ready ready;
  ready.request.kind = OpKind::kAllreduce;
  ready.request.dtype = dtype;
  ready.request.name = std::move(name);
  ready.request.shape = {floats};
  return ready;
}

// "ab c": groups in order, their names side by side.
std::string plan_text(std::vector<Ready> ready, std::size_t limit) {
  std::string text;
  for (const Response& response : plan_fusion(std::move(ready), limit, 2)) {
    text += text.empty() ? "" : " ";
    for (const std::string& name : response.names) {
      text += name;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("alike allreduces share a group up to the limit") {
  const std::vector<Ready> three = {tensor("a", 1), tensor("b", 1), tensor("c", 1)};
  CHECK(plan_text(three, 12) == "abc");
  CHECK(plan_text(three, 11) == "ab c");
  CHECK(plan_text(three, 4) == "a b c");
  CHECK(plan_text(three, 0) == "a b c");
  CHECK(plan_text({}, 12).empty());
}

TEST_CASE("look-ahead skips what does not fit and leaves it in its place") {
  CHECK(plan_text({tensor("a", 1), tensor("B", 100), tensor("c", 1)}, 8) == "ac B");
  CHECK(plan_text({tensor("a", 1), tensor("d", 1, Dtype::kFloat64), tensor("c", 1), tensor("e", 1, Dtype::kFloat64)},
                  64) == "ac de");
}

TEST_CASE("a tensor above the limit goes alone, an empty one along") {
  CHECK(plan_text({tensor("A", 100), tensor("b", 1)}, 8) == "A b");
  CHECK(plan_text({tensor("a", 1), tensor("z", 0)}, 8) == "az");
  CHECK(plan_text({tensor("z", 0), tensor("y", 0)}, 0) == "z y");
}

TEST_CASE("different scales, operators, kinds and errors are never fused") {
  auto scaled = tensor("s", 1);
  scaled.request.prescale = 2.0;
  auto post = tensor("p", 1);
  post.request.postscale = 2.0;
  auto max = tensor("m", 1);
  max.request.op = ReduceOp::kMax;
  auto gather = tensor("g", 1);
  gather.request.kind = OpKind::kAllgather;
  gather.first_dims = {1, 1};
  auto root = tensor("r", 1);
  root.request.kind = OpKind::kBroadcast;
  auto wrong = tensor("w", 1);
  wrong.error_code = static_cast<int>(Code::kMismatch);
  wrong.error = "why";
  CHECK(plan_text({tensor("a", 1), scaled, post, max, gather, root, wrong, gather, root, tensor("b", 1)}, 1U << 20U) ==
        "ab s p m gg r w r");
}

TEST_CASE("what lies on devices never travels with what does not, also of one group") {
  const auto on_device = [](std::string name) {
    Ready ready = tensor(std::move(name), 1);
    ready.request.is_device = true;
    return ready;
  };
  const auto plan = plan_fusion({tensor("a", 1), on_device("b"), tensor("c", 1), on_device("d")}, 64, 2);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].names == std::vector<std::string>{"a", "c"});
  CHECK_FALSE(plan[0].is_device);
  CHECK(plan[1].names == std::vector<std::string>{"b", "d"});
  CHECK(plan[1].is_device);
  auto group = tensor("a", 1);
  group.request.group = {{"b", Dtype::kFloat32, {1}, -1, true}, {"c", Dtype::kFloat32, {1}}};
  CHECK(plan_text({group, on_device("d")}, 64) == "ac bd");
}

TEST_CASE("a response carries what ranks need") {
  auto gather = tensor("g", 2);
  gather.request.kind = OpKind::kAllgather;
  gather.first_dims = {2, 5};
  auto wrong = tensor("w", 1);
  wrong.error_code = static_cast<int>(Code::kMismatch);
  wrong.error = "why";
  const auto plan = plan_fusion({gather, wrong}, 64, 2);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0] == Response{OpKind::kAllgather, 0, "", {"g"}, {2, 5}});
  CHECK(plan[1] == Response{OpKind::kAllreduce, 13, "why", {"w"}, {}});
}

TEST_CASE("a group travels together whatever the limit says, each type of it in one response") {
  auto group = tensor("a", 100);
  group.request.group = {{"b", Dtype::kFloat64, {100}}, {"c", Dtype::kFloat32, {100}}, {"d", Dtype::kFloat64, {1}}};
  CHECK(plan_text({tensor("x", 1), group, tensor("y", 1)}, 8) == "xy ac bd");
  CHECK(plan_text({group}, 0) == "ac bd");
  // Room that a group leaves is used by others.
  auto small = tensor("a", 1);
  small.request.group = {{"b", Dtype::kFloat32, {1}}};
  CHECK(plan_text({small, tensor("x", 1), tensor("y", 1)}, 12) == "abx y");
  CHECK(plan_text({tensor("x", 1), small, tensor("y", 1)}, 8) == "xy ab");
}

TEST_CASE("a group in disagreement is one error, under its first name") {
  auto group = tensor("a", 1);
  group.request.group = {{"b", Dtype::kFloat32, {1}}};
  group.error_code = static_cast<int>(Code::kMismatch);
  group.error = "why";
  const auto plan = plan_fusion({group}, 64, 2);
  CHECK(plan == std::vector<Response>{{OpKind::kAllreduce, 13, "why", {"a"}, {}}});
}

TEST_CASE("allgathers are fused by what they bring together, with all their extents") {
  auto one = tensor("g", 2);
  one.request.kind = OpKind::kAllgather;
  one.first_dims = {2, 5};
  auto two = one;
  two.request.name = "h";
  two.first_dims = {0, 1};
  CHECK(plan_fusion({one, two}, 32, 2) == std::vector<Response>{{OpKind::kAllgather, 0, "", {"g", "h"}, {2, 5, 0, 1}}});
  CHECK(plan_text({one, two}, 31) == "g h");
  two.first_dims = {INT64_MAX, INT64_MAX};  // more than a number holds
  CHECK(plan_text({one, two}, 1U << 30U) == "g h");
}

TEST_CASE("the extents of a response are bounded, also of a group's") {
  auto group = tensor("a", 1);
  group.request.kind = OpKind::kAllgather;
  constexpr int kRanks = 1000;
  for (int i = 0; i < 999; ++i) {
    group.request.group.push_back({"t" + std::to_string(i), Dtype::kFloat32, {1}});
  }
  group.first_dims.assign(std::size_t{1000} * kRanks, 1);
  const auto plan = plan_fusion({group}, 64, kRanks);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].first_dims.size() == 524 * kRanks);
  CHECK(plan[1].names.size() == 476);
}

TEST_CASE("what a joined rank has not asked for says how much of what it is, with all that it travels with") {
  auto missed = tensor("m", 3);
  missed.request.op = ReduceOp::kMax;
  missed.request.prescale = 0.25;
  missed.request.postscale = 0.5;
  missed.is_missed = true;
  auto other = tensor("o", 2);
  other.request.op = ReduceOp::kMax;
  other.request.prescale = 0.25;
  other.request.postscale = 0.5;
  auto scalar = tensor("s", 1);
  scalar.request.shape = {};
  const auto plan = plan_fusion({other, missed, scalar}, 64, 2);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].names == std::vector<std::string>{"o", "m"});
  CHECK(plan[0].counts == std::vector<std::int64_t>{2, 3});
  CHECK(plan[0].dtype == Dtype::kFloat32);
  CHECK(plan[0].op == ReduceOp::kMax);
  CHECK(plan[0].prescale == 0.25);
  CHECK(plan[0].postscale == 0.5);
  CHECK(plan[1].counts.empty());
  scalar.is_missed = true;
  CHECK(plan_fusion({scalar}, 64, 2)[0].counts == std::vector<std::int64_t>{1});
}

TEST_CASE("a join carries its last rank") {
  Ready join;
  join.request.kind = OpKind::kJoin;
  join.request.name = kJoinName;
  join.answer = 1;
  const auto plan = plan_fusion({tensor("a", 1), join, tensor("b", 1)}, 64, 2);
  REQUIRE(plan.size() == 2);
  CHECK(plan[1].kind == OpKind::kJoin);
  CHECK(plan[1].answer == 1);
}

TEST_CASE("the number of tensors in a group is bounded") {
  std::vector<Ready> many;
  for (std::size_t i = 0; i <= control_wire::kMaxGroupTensors; ++i) {
    many.push_back(tensor("t" + std::to_string(i), 0));
  }
  const auto plan = plan_fusion(many, 64, 2);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].names.size() == control_wire::kMaxGroupTensors);
}

TEST_CASE("random plans: each tensor once, groups alike and within the limit, order kept, same again") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Ready> ready;
    std::map<std::string, Ready> by_name;
    const std::size_t limit = random() % 200;
    for (std::size_t i = 0; i < random() % 30; ++i) {
      auto one = tensor("t" + std::to_string(i), static_cast<std::int64_t>(random() % 20),
                        random() % 2 == 0 ? Dtype::kFloat32 : Dtype::kInt64);
      one.request.op = random() % 3 == 0 ? ReduceOp::kMax : ReduceOp::kSum;
      one.request.kind = random() % 5 == 0 ? OpKind::kBroadcast : OpKind::kAllreduce;
      by_name.emplace(one.request.name, one);
      ready.push_back(one);
    }
    const auto plan = plan_fusion(ready, limit, 2);
    CHECK(plan == plan_fusion(ready, limit, 2));
    std::set<std::string> seen;
    int last_first = -1;
    for (const Response& response : plan) {
      std::size_t bytes = 0;
      const Request& like = by_name.at(response.names.front()).request;
      for (const std::string& name : response.names) {
        const Request& request = by_name.at(name).request;
        CHECK(seen.insert(name).second);
        CHECK(request.kind == response.kind);
        CHECK(request.dtype == like.dtype);
        CHECK(request.op == like.op);
        bytes += size_bytes_of(request.shape, request.dtype).value();
      }
      CHECK((response.names.size() == 1 || bytes <= limit));
      const int first = std::stoi(response.names.front().substr(1));
      CHECK(first > last_first);
      last_first = first;
    }
    CHECK(seen.size() == ready.size());
  }
}

TEST_CASE("where groups are not fused, theirs travel by themselves and others as ever") {
  Ready group = tensor("g", 1);
  group.request.group = {{"h", Dtype::kFloat32, {1}, -1}};
  const std::vector<Ready> ready = {tensor("a", 1), group, tensor("b", 1)};
  const auto names_of = [&](bool fuses_groups) {
    std::vector<std::vector<std::string>> names;
    for (const Response& response : plan_fusion(ready, 1000, 2, fuses_groups)) {
      names.push_back(response.names);
    }
    return names;
  };
  CHECK(names_of(true) == std::vector<std::vector<std::string>>{{"a", "g", "h", "b"}});
  CHECK(names_of(false) == std::vector<std::vector<std::string>>{{"a", "b"}, {"g", "h"}});
}

}  // namespace hvd::fusion_plan_test
