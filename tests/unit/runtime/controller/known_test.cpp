// What all ranks know goes by bits: wire, positions, plans.
#include <random>

#include <doctest/doctest.h>

#include "runtime/base/frame.h"
#include "runtime/controller/fusion_plan.h"
#include "runtime/controller/known_tensors.h"
#include "runtime/controller/known_wire.h"
#include "runtime/controller/response_cache.h"

namespace hvd::known_test {
namespace {

std::string body_of(const std::string& frame) {
  return frame.substr(kFrameHeaderBytes);
}

PositionBits bits_of(const std::vector<int>& positions) {
  PositionBits bits;
  for (const int position : positions) {
    bits.set(position);
  }
  return bits;
}

std::vector<int> positions_in(const PositionBits& bits) {
  std::vector<int> all;
  bits.for_each([&](int position) { all.push_back(position); });
  return all;
}

Request allreduce_of(const std::string& name, std::int64_t count) {
  Request request;
  request.kind = OpKind::kAllreduce;
  request.dtype = Dtype::kFloat32;
  request.name = name;
  request.shape = {count};
  return request;
}

Ready ready_of(Request request) {
  Ready ready;
  ready.request = std::move(request);
  return ready;
}

// All `size` ranks ask for it, and it is taken.
void use(KnownTensors& known, int position, int size) {
  for (int index = 0; index < size; ++index) {
    REQUIRE(known.ask(position, index, 1));
  }
  PositionBits taken;
  known.take(taken);
  REQUIRE(positions_in(taken) == std::vector<int>{position});
}

}  // namespace

TEST_CASE("bits are positions in ascending order, and have no words that are 0 at the end") {
  PositionBits bits = bits_of({64, 3, 200, 0, 63});
  CHECK(positions_in(bits) == std::vector<int>{0, 3, 63, 64, 200});
  CHECK(bits.words().size() == 4);
  bits.clear();
  CHECK(bits.empty());
}

TEST_CASE("what is known is read as it was written") {
  std::string out;
  append_bits(out, {7, 99, bits_of({0, 161})});
  KnownBits known;
  REQUIRE(decode_bits(body_of(out), known).ok());
  CHECK(known.process_set == 7);
  CHECK(known.changes == 99);
  CHECK(known.bits == bits_of({0, 161}));

  out.clear();
  append_hits(out, {3, std::uint64_t{1} << 40U, false, bits_of({5})});
  KnownHits hits;
  REQUIRE(decode_hits(body_of(out), hits).ok());
  CHECK(hits.process_set == 3);
  CHECK(hits.fusion_bytes == std::uint64_t{1} << 40U);
  CHECK_FALSE(hits.fuses_groups);
  CHECK(hits.bits == bits_of({5}));

  const std::vector<Remembered> items = {{0, "a", -7, true, {}}, {1, "rows", 0, false, {1, 0, 4}}};
  out.clear();
  append_remembered(out, 2, items);
  const auto batch = decode_remembered(body_of(out));
  REQUIRE(batch.ok());
  CHECK(batch.value().process_set == 2);
  CHECK(batch.value().items == items);

  out.clear();
  append_bits(out, KnownBits());
  append_hits(out, KnownHits());
  append_remembered(out, 0, {});
  CHECK(out.empty());
}

TEST_CASE("what is known is refused when it is cut short, too long, or no bits at all") {
  std::string out;
  append_hits(out, {0, 1, true, bits_of({5, 70})});
  const std::string whole = body_of(out);
  KnownHits hits;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CHECK_FALSE(decode_hits(std::string_view(whole).substr(0, length), hits).ok());
  }
  CHECK_FALSE(decode_hits(whole + '\0', hits).ok());
  std::string none = whole;
  none.back() = '\0';
  none[none.size() - 8] = '\0';
  CHECK_FALSE(decode_hits(none, hits).ok());
  CHECK_FALSE(decode_remembered("").ok());
}

TEST_CASE("a position is given to what all asked for by message, and the one not used for longest makes room") {
  KnownTensors known(2, 2);
  CHECK(known.remember(ready_of(allreduce_of("a", 1)))->position == 0);
  CHECK(known.remember(ready_of(allreduce_of("b", 1)))->position == 1);
  use(known, 0, 2);
  const auto c = known.remember(ready_of(allreduce_of("c", 1)));
  REQUIRE(c.has_value());
  CHECK(c->position == 1);
  CHECK(known.find("b") == -1);
  CHECK(known.find("a") == 0);
  // The same name again keeps its position.
  CHECK(known.remember(ready_of(allreduce_of("a", 8)))->position == 0);
  CHECK(known.request(0).shape == std::vector<std::int64_t>{8});
  CHECK(known.changes() == 4);
  CHECK(known.is_current(1, 3));
  CHECK_FALSE(known.is_current(1, 2));
}

TEST_CASE("what some rank waits for keeps its position") {
  KnownTensors known(2, 2);
  REQUIRE(known.remember(ready_of(allreduce_of("a", 1))));
  REQUIRE(known.remember(ready_of(allreduce_of("b", 1))));
  REQUIRE(known.ask(0, 1, 5));
  CHECK_FALSE(known.ask(0, 1, 6));
  known.hold(1);
  CHECK_FALSE(known.remember(ready_of(allreduce_of("c", 1))).has_value());
  CHECK(known.has_unfinished());
  CHECK(known.has_fresh_incomplete());
  REQUIRE(known.unfinished().size() == 1);
  CHECK(known.unfinished().front().name == "a");
  CHECK(known.unfinished().front().missing == std::vector<int>{0});
  known.forget_asks(0);
  CHECK_FALSE(known.has_unfinished());
  CHECK_FALSE(known.has_fresh_incomplete());
  CHECK(known.remember(ready_of(allreduce_of("c", 1)))->position == 0);
}

TEST_CASE("what cannot be asked for in the same way again is not known") {
  KnownTensors known(2, 8);
  Ready missed = ready_of(allreduce_of("a", 1));
  missed.is_missed = true;
  CHECK_FALSE(known.remember(missed).has_value());
  Ready failed = ready_of(allreduce_of("a", 1));
  failed.error_code = 13;
  CHECK_FALSE(known.remember(failed).has_value());
  Ready join;
  join.request.kind = OpKind::kJoin;
  join.request.name = kJoinName;
  CHECK_FALSE(known.remember(join).has_value());
  CHECK_FALSE(known.remember(ready_of(allreduce_of("allreduce.noname.17", 1))).has_value());
  Ready mixed = ready_of(allreduce_of("a", 1));
  mixed.request.group.push_back({"b", Dtype::kInt32, {1}});
  CHECK_FALSE(known.remember(mixed).has_value());
  CHECK_FALSE(KnownTensors(2, 0).remember(ready_of(allreduce_of("a", 1))).has_value());
}

TEST_CASE("what is known of an allgather is each rank's own rows") {
  KnownTensors known(3, 8);
  Ready ready = ready_of(allreduce_of("a", 4));
  ready.request.kind = OpKind::kAllgather;
  ready.first_dims = {4, 0, 9};
  REQUIRE(known.remember(ready));
  CHECK(known.request_of(0, 2).shape == std::vector<std::int64_t>{9});
  CHECK(known.request_of(0, 1).shape == std::vector<std::int64_t>{0});
}

// The two plan the same: one from requests and responses, the other from positions.
TEST_CASE("a plan of what is known is the plan of the same requests") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const int size = 1 + static_cast<int>(random() % 3);
    ResponseCache cache(size);
    std::vector<Ready> all;
    const int tensors = 1 + static_cast<int>(random() % 30);
    for (int i = 0; i < tensors; ++i) {
      Request request = allreduce_of("t" + std::to_string(i), 1 + static_cast<std::int64_t>(random() % 50));
      const OpKind kinds[] = {OpKind::kAllreduce, OpKind::kAllreduce, OpKind::kAllgather, OpKind::kReducescatter,
                              OpKind::kBroadcast};
      request.kind = kinds[random() % 5];
      request.dtype = random() % 3 == 0 ? Dtype::kInt32 : Dtype::kFloat32;
      request.priority = random() % 4 == 0 ? 1 : 0;
      if (is_groupable(request.kind) && random() % 4 == 0) {
        request.group.push_back({"g" + std::to_string(i), request.dtype, {3}});
      }
      Ready ready = ready_of(request);
      ready.is_shared = request.kind == OpKind::kAllreduce && random() % 4 == 0;
      if (request.kind == OpKind::kAllgather) {
        ready.first_dims.assign((request.group.size() + 1) * static_cast<std::size_t>(size), 2);
      }
      REQUIRE(cache.remember({i, request.name, request.priority, ready.is_shared, ready.first_dims}, request).ok());
      all.push_back(ready);
    }
    KnownHits hits;
    hits.fusion_bytes = random() % 2 == 0 ? 400 : random() % 3 * 100;
    hits.fuses_groups = random() % 2 == 0;
    std::vector<Ready> chosen;
    for (int i = 0; i < tensors; ++i) {
      if (random() % 4 != 0) {
        hits.bits.set(i);
        chosen.push_back(all[static_cast<std::size_t>(i)]);
      }
    }
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Ready& a, const Ready& b) { return a.request.priority > b.request.priority; });
    const auto expected = plan_fusion(chosen, hits.fusion_bytes, size, hits.fuses_groups);
    const ResponseCache::Plan& plan = cache.plan(hits);
    REQUIRE(plan.ends.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::vector<std::string> names;
      for (const int position : plan.response(i)) {
        names.push_back(cache.at(position).request.name);
        for (const GroupTensor& tensor : cache.at(position).request.group) {
          names.push_back(tensor.name);
        }
      }
      CHECK(names == expected[i].names);
    }
    const std::uint64_t made = cache.plans_made();
    cache.plan(hits);
    CHECK(cache.plans_made() == made);
  }
}

TEST_CASE("what a rank is told to remember must be what it asked for") {
  ResponseCache cache(2);
  CHECK_FALSE(cache.remember({1, "a", 0, false, {}}, allreduce_of("a", 1)).ok());
  CHECK_FALSE(cache.remember({0, "a", 0, false, {1, 1}}, allreduce_of("a", 1)).ok());
  REQUIRE(cache.remember({0, "a", 0, false, {}}, allreduce_of("a", 1)).ok());
  CHECK(cache.find("a") == 0);
  REQUIRE(cache.remember({0, "b", 0, false, {}}, allreduce_of("b", 1)).ok());
  CHECK(cache.find("a") == -1);
  CHECK(cache.find("b") == 0);
  CHECK(cache.changes() == 2);
}

}  // namespace hvd::known_test
