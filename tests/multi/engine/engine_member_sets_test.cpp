// Process sets that their members make alone, on N ranks through the C interface.
#include <latch>

#include <doctest/doctest.h>

#include "tests/multi/engine/set_calls.h"

namespace hvd::test::engine_member_sets_test {
namespace {

Outcome add_by_members(hvd_ctx* ctx, const Ranks& ranks, std::int32_t& number) {
  return outcome(hvd_process_set_add_by_members(ctx, ranks.data(), static_cast<std::int32_t>(ranks.size()), &number));
}

std::int32_t must_add_by_members(hvd_ctx* ctx, const Ranks& ranks) {
  std::int32_t number = -1;
  CHECK(add_by_members(ctx, ranks, number).error == "");
  return number;
}

}  // namespace

TEST_CASE("members make a set of theirs while the others do nothing, or something else") {
  for (const Nodes& nodes : {Nodes{4}, Nodes{2, 2}}) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    // Two at once, without a common rank; rank 0 coordinates and is in neither.
    const std::vector<Ranks> sets = {{1, 3}, {2}};
    std::latch all_done(3);
    on_all(4, [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      if (rank == 0) {
        all_done.wait();  // it never calls anything
        return;
      }
      const Ranks& own = sets[rank == 2 ? 1 : 0];
      do_everything(ctx, must_add_by_members(ctx, own), own, rank, "x");
      all_done.count_down();
    });
    on_all(4, [&](int rank) { do_everything(job.at(rank), 0, {0, 1, 2, 3}, rank, "x"); });
  }
}

TEST_CASE("a set that its members make is one for all ranks") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    std::int32_t number = -1;
    const Ranks pair = {0, 2};
    if (rank == 1) {
      CHECK(add_by_members(ctx, pair, number).says("rank 1 is no member of the process set"));
    } else {
      number = must_add_by_members(ctx, {2, 0});
      CHECK(add_by_members(ctx, pair, number).says("has the same ranks already"));
    }
    do_everything(ctx, 0, {0, 1, 2}, rank, "all");  // from here on rank 1 has it too
    const Ranks numbers = numbers_of(ctx);
    REQUIRE(numbers.size() == 2);
    CHECK(add_set(ctx, pair, number).says("has the same ranks already"));
    CHECK(outcome(hvd_process_set_remove(ctx, numbers.back())).error == "");
    CHECK(must_add(ctx, pair) == numbers.back() + 1);
  });
}

TEST_CASE("members do not make a set while one of them has joined; others may have") {
  EngineJob job({3});
  std::latch has_joined(1);
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    FloatOp join("", 0, 0.0F);
    join.op.name = nullptr;
    join.op.kind = HVD_JOIN;
    if (rank == 2) {
      CHECK(join.start(ctx).error == "");
      has_joined.count_down();
    } else {
      has_joined.wait();
      FloatOp told("told", 1, 1.0F);
      CHECK(told.run(ctx).error == "");  // without rank 2: the coordinator knows of its join
      std::int32_t number = -1;
      if (rank == 0) {
        const Ranks with_it = {0, 2};
        CHECK(add_by_members(ctx, with_it, number).says("rank 2 has joined"));
      }
      do_everything(ctx, must_add_by_members(ctx, {0, 1}), {0, 1}, rank, "x");
      CHECK(join.start(ctx).error == "");
    }
    CHECK(join.wait(ctx).error == "");
    do_everything(ctx, 0, {0, 1, 2}, rank, "all");
  });
}

}  // namespace hvd::test::engine_member_sets_test
