// Process sets, on N ranks through the C interface.
#include <atomic>
#include <latch>

#include <doctest/doctest.h>

#include "tests/multi/engine/set_calls.h"

namespace hvd::test::engine_sets_test {

TEST_CASE("every operation works in process sets of any ranks, under one name in all of them") {
  for (const Nodes& nodes : {Nodes{4}, Nodes{2, 2}, Nodes{1, 1, 1, 1}, Nodes{3, 1}}) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    const std::vector<Ranks> sets = {{0, 1}, {2, 3}, {1, 2, 3}, {0, 3}, {2}};
    on_all(4, [&](int rank) {
      Ranks numbers;
      for (const Ranks& ranks : sets) {
        numbers.push_back(must_add(job.at(rank), ranks));
      }
      CHECK(numbers_of(job.at(rank)) == Ranks{0, 1, 2, 3, 4, 5});
      for (std::size_t i = 0; i < sets.size(); ++i) {
        if (is_in(sets[i], rank)) {
          do_everything(job.at(rank), numbers[i], sets[i], rank, "x");
        }
      }
      do_everything(job.at(rank), 0, {0, 1, 2, 3}, rank, "x");
      for (const std::int32_t number : numbers) {
        CHECK(hvd_process_set_remove(job.at(rank), number) == HVD_OK);
      }
      CHECK(numbers_of(job.at(rank)) == Ranks{0});
    });
  }
}

TEST_CASE("the ranks of a set are told, in order, and to those beside it too") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    const std::int32_t number = must_add(job.at(rank), {2, 0});
    std::int32_t count = 0;
    Ranks ranks(3, -1);
    CHECK(hvd_process_set_ranks(job.at(rank), number, ranks.data(), 3, &count) == HVD_OK);
    CHECK(count == 2);
    CHECK(ranks == Ranks{0, 2, -1});
    CHECK(hvd_process_set_ranks(job.at(rank), number, ranks.data(), 1, &count) == HVD_OK);
    CHECK(hvd_process_set_ranks(job.at(rank), 17, ranks.data(), 3, &count) == HVD_NOT_FOUND);
    CHECK(hvd_process_set_ranks(job.at(rank), number, nullptr, 3, &count) == HVD_INVALID);
    CHECK(hvd_process_set_numbers(job.at(rank), nullptr, 0, nullptr) == HVD_INVALID);
  });
}

TEST_CASE("sets without a common rank go on without each other, also while the coordinator waits in its own") {
  EngineJob job({4});
  std::latch others_are_done(1);
  on_all(4, [&](int rank) {
    const std::int32_t first = must_add(job.at(rank), {0, 1});
    const std::int32_t second = must_add(job.at(rank), {2, 3});
    FloatOp op("x", 10, 1.0F);
    op.op.process_set = rank < 2 ? first : second;
    if (rank == 1) {
      others_are_done.wait();  // rank 0 waits for this rank all the time
    }
    for (int i = 0; i < 100; ++i) {
      CHECK(op.run(job.at(rank)).error == "");
    }
    if (rank == 3) {
      others_are_done.count_down();
    }
  });
}

TEST_CASE("what cannot be is refused on all ranks, and the job goes on") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    std::int32_t number = -1;
    CHECK(add_set(ctx, {0, 0}, number).says("rank 0 twice"));
    CHECK(add_set(ctx, {0, 3}, number).says("the ranks are 0 to 2"));
    CHECK(add_set(ctx, {}, number).status == HVD_INVALID);
    CHECK(hvd_process_set_add(ctx, nullptr, 2, &number) == HVD_INVALID);
    const Outcome differs = add_set(ctx, {0, rank == 2 ? 2 : 1}, number);
    CHECK(differs.status == HVD_MISMATCH);
    CHECK(differs.says("rank 0 named the ranks 0, 1, but rank 2 named the ranks 0, 2"));
    CHECK(add_set(ctx, {2, 1, 0}, number).says("process set 0 has the same ranks already"));
    const std::int32_t pair = must_add(ctx, {0, 1});
    CHECK(add_set(ctx, {1, 0}, number).says("has the same ranks already"));

    FloatOp op("x", 3, 1.0F);
    op.op.process_set = pair;
    if (rank == 2) {
      CHECK(op.start(ctx).says("not a member of process set"));
    } else {
      op.op.kind = HVD_BROADCAST;
      op.op.root_rank = 2;
      CHECK(op.start(ctx).says("root_rank is 2, which is not of process set"));
    }
    op.op.process_set = 99;
    CHECK(op.start(ctx).status == HVD_NOT_FOUND);
    op.op.process_set = pair;
    op.op.kind = HVD_JOIN;
    CHECK(op.start(ctx).says("a join is one of all ranks"));
    CHECK(hvd_process_set_remove(ctx, 99) == HVD_NOT_FOUND);
    CHECK(outcome(hvd_process_set_remove(ctx, 0)).says("it is that of all ranks"));
  });
}

TEST_CASE("ranks of a set that disagree are named as the job names them") {
  EngineJob job({4});
  on_all(4, [&](int rank) {
    const std::int32_t number = must_add(job.at(rank), {1, 3});
    if (rank % 2 == 1) {
      FloatOp op("x", static_cast<std::size_t>(rank), 1.0F);
      op.op.process_set = number;
      const Outcome differs = op.run(job.at(rank));
      CHECK(differs.status == HVD_MISMATCH);
      CHECK(differs.says("rank 1 sent a tensor of shape [1], but rank 3 sent a tensor of shape [3]"));
    }
  });
}

TEST_CASE("a set in which an operation waits for others is not removed; what is ready is done first") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    const std::int32_t number = must_add(ctx, {0, 1});
    FloatOp op("x", 10, 1.0F);
    op.op.process_set = number;
    if (rank == 0) {
      CHECK(op.start(ctx).error == "");
    }
    const Outcome refused = outcome(hvd_process_set_remove(ctx, number));
    CHECK(refused.status == HVD_INVALID);
    CHECK(refused.says("operations are pending in it"));
    if (rank == 1) {
      CHECK(op.start(ctx).error == "");
    }
    CHECK(outcome(hvd_process_set_remove(ctx, number)).error == "");
    if (rank < 2) {
      CHECK(op.wait(ctx).error == "");
      CHECK(op.output[0] == 2.0F);
    }
    op.op.process_set = number;
    CHECK(op.start(ctx).status == HVD_NOT_FOUND);
    // The same ranks may have a new one, of another number.
    CHECK(must_add(ctx, {0, 1}) == number + 1);
  });
}

TEST_CASE("what was asked for in a set before the join is done before it, with zeros for who joined without") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    const std::int32_t number = must_add(ctx, {1, 2});
    for (int round = 0; round < 20; ++round) {
      FloatOp op("x" + std::to_string(round % 2), 4, 1.0F);
      op.op.process_set = number;
      if (rank == 1) {
        CHECK(op.start(ctx).error == "");
      }
      std::int64_t handle = 0;
      hvd_op join = HVD_OP_INIT;
      join.kind = HVD_JOIN;
      CHECK(outcome(hvd_enqueue(ctx, &join, &handle)).error == "");
      if (rank == 1) {
        CHECK(op.wait(ctx).error == "");
        CHECK(op.output[0] == 1.0F);
      }
      CHECK(outcome(hvd_wait(ctx, handle)).error == "");
    }
  });
}

TEST_CASE("groups, unnamed operations and joins keep sets apart") {
  EngineJob job({2, 2});
  on_all(4, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    const Ranks ranks = {0, 2, 3};
    const std::int32_t number = must_add(ctx, ranks);
    if (is_in(ranks, rank)) {
      FloatOp a("a", 5, 1.0F);
      FloatOp b("b", 7, 2.0F);
      const hvd_op* group[] = {&a.op, &b.op};
      std::int64_t handles[2] = {0, 0};
      a.op.process_set = number;
      CHECK(outcome(hvd_enqueue_group(ctx, group, 2, handles)).says("process_set"));
      b.op.process_set = number;
      CHECK(outcome(hvd_enqueue_group(ctx, group, 2, handles)).error == "");
      CHECK(hvd_wait(ctx, handles[0]) == HVD_OK);
      CHECK(hvd_wait(ctx, handles[1]) == HVD_OK);
      CHECK(b.output == std::vector<float>(7, 6.0F));
      for (int i = 0; i < 3; ++i) {
        FloatOp unnamed("", 4, 1.0F);
        unnamed.op.name = nullptr;
        unnamed.op.process_set = number;
        CHECK(unnamed.run(ctx).error == "");
        CHECK(unnamed.output[0] == 3.0F);
      }
    }
    FloatOp unnamed("", 4, 1.0F);
    unnamed.op.name = nullptr;
    CHECK(unnamed.run(ctx).error == "");
    CHECK(unnamed.output[0] == 4.0F);
    // A rank that has joined brings zeros to the sets that it is in, too.
    for (const char* name : {"last", "", ""}) {
      FloatOp last(name, 4, 1.0F);
      last.op.process_set = number;
      last.op.name = *name == '\0' ? nullptr : name;
      if (rank == 0 || rank == 2) {
        CHECK(last.run(ctx).error == "");
        CHECK(last.output[0] == 2.0F);
      }
    }
    std::int64_t handle = 0;
    hvd_op join = HVD_OP_INIT;
    join.kind = HVD_JOIN;
    CHECK(outcome(hvd_enqueue(ctx, &join, &handle)).error == "");
    if (rank == 3) {  // what is refused counts for nothing
      FloatOp refused("", 4, 1.0F);
      refused.op.name = nullptr;
      refused.op.process_set = number;
      CHECK(refused.start(ctx).says("this rank has joined"));
    }
    CHECK(outcome(hvd_wait(ctx, handle)).error == "");
    // It has counted the unnamed ones that were done without it.
    for (const char* name : {"after", ""}) {
      FloatOp after(name, 4, 1.0F);
      after.op.process_set = number;
      after.op.name = *name == '\0' ? nullptr : name;
      if (is_in(ranks, rank)) {
        CHECK(after.run(ctx).error == "");
        CHECK(after.output[0] == 3.0F);
      }
    }
  });
}

TEST_CASE("a rank that is lost while a set is made, or works, ends the job by its name") {
  for (const bool is_made : {false, true}) {
    EngineJob job({3});
    std::atomic<int> errors = 0;
    std::latch all_have_it(3);
    on_all(3, [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      const std::int32_t number = is_made ? must_add(ctx, {0, 1}) : 0;
      all_have_it.arrive_and_wait();
      if (rank == 1) {
        for (const int other : {0, 2}) {
          job.hub().notify(other, "rank 1 was killed by SIGKILL");
        }
        job.leave(1);
        return;
      }
      Outcome lost;
      if (is_made && rank == 0) {
        FloatOp op("x", 10, 1.0F);
        op.op.process_set = number;
        lost = op.run(ctx);
      } else {
        std::int32_t made = 0;
        lost = add_set(ctx, {1, 2}, made);
      }
      CHECK(lost.status == HVD_LOST_PEER);
      errors += lost.says("rank 1") ? 1 : 0;
    });
    CHECK(errors == 2);
  }
}

TEST_CASE("a rank that fails alone while a set is made keeps no other waiting for it") {
  auto scratch = std::make_optional<ScratchDir>();
  EngineJob job({2, 1}, {}, LogLevel::kError, [&](int rank, Config& config) {
    if (rank == 0) {
      config.engine.mesh.scratch_dir = scratch->path();
    }
  });
  scratch.reset();  // so that rank 0 has no place for the socket of the set
  on_all(3, [&](int rank) {
    std::int32_t made = 0;
    const Outcome failed = add_set(job.at(rank), {0, 1}, made);
    CAPTURE(rank);
    CAPTURE(failed.error);
    CHECK(failed.status == (rank == 0 ? HVD_SYSTEM : HVD_LOST_PEER));  // the others follow rank 0
    CHECK(failed.says("rank 0: "));
    CHECK(failed.says("No such file or directory"));
    CHECK_FALSE(failed.says("timed out"));
  });
}

}  // namespace hvd::test::engine_sets_test
