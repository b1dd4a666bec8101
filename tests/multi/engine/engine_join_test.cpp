// Ranks that have no more data, on N ranks through the C interface.
#include <deque>
#include <latch>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_join_test {
namespace {

Outcome start_join(hvd_ctx* ctx, std::int64_t& handle) {
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_JOIN;
  return outcome(hvd_enqueue(ctx, &op, &handle));
}

// The rank that joined last, or the error.
struct Joined {
  Outcome outcome;
  std::int32_t last = -1;
};

Joined wait_for_join(hvd_ctx* ctx, std::int64_t handle) {
  Joined joined{outcome(hvd_wait(ctx, handle)), -1};
  hvd_output out = HVD_OUTPUT_INIT;
  if (joined.outcome.status == HVD_OK && hvd_result(ctx, handle, &out) == HVD_OK) {
    joined.last = *static_cast<const std::int32_t*>(out.data);
  }
  return joined;
}

Joined join(hvd_ctx* ctx) {
  std::int64_t handle = 0;
  const Outcome started = start_join(ctx, handle);
  return started.status == HVD_OK ? wait_for_join(ctx, handle) : Joined{started, -1};
}

}  // namespace

TEST_CASE("ranks that have joined bring zeros, and an average is over all ranks; the join names the last") {
  for (const Nodes& nodes : all_layouts()) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    const int size = job.size();
    // Rank r has r + 1 steps, so that rank size-1 is the last to join.
    on_all(size, [&](int rank) {
      for (int step = 0; step <= rank; ++step) {
        const auto brings = static_cast<float>(size - step);
        FloatOp sum("sum", 1000, 3.0F);
        FloatOp average("average", 7, 3.0F);
        FloatOp least("least", 5, 3.0F);
        average.op.reduce_op = HVD_AVERAGE;
        least.op.reduce_op = HVD_MIN;
        for (FloatOp* op : {&sum, &average, &least}) {
          CHECK(op->start(job.at(rank)).error == "");
        }
        for (FloatOp* op : {&sum, &average, &least}) {
          CHECK(op->wait(job.at(rank)).error == "");
        }
        CHECK(sum.output == std::vector<float>(1000, 3.0F * brings));
        CHECK(average.output[0] == doctest::Approx(3.0F * brings / static_cast<float>(size)));
        CHECK(least.output == std::vector<float>(5, step == 0 ? 3.0F : 0.0F));
      }
      const Joined joined = join(job.at(rank));
      CHECK(joined.outcome.error == "");
      CHECK(joined.last == size - 1);
      // And then all are back.
      FloatOp after("after", 3, 1.0F);
      CHECK(after.run(job.at(rank)).status == HVD_OK);
      CHECK(after.output == std::vector<float>(3, static_cast<float>(size)));
    });
  }
}

TEST_CASE("a joined rank's part of a ring is scaled as the others' parts are") {
  EngineOptions options;
  options.tuning.pairs_bytes = 0;
  options.tuning.wire_bytes = 4096;
  options.tuning.segment_bytes = 64U << 10U;
  for (const Nodes& nodes : {Nodes{1, 1, 1}, Nodes{2, 1}, Nodes{1, 2}}) {
    for (int joined = 0; joined < 3; ++joined) {
      CAPTURE(text_of(nodes));
      CAPTURE(joined);
      EngineJob job(nodes, options);
      on_all(3, [&](int rank) {
        if (rank != joined) {
          // Long enough that every rank has some of it; of a group one has none of its own.
          static constexpr std::size_t kCounts[] = {20'011, 3, 50'021};
          std::deque<FloatOp> ops;
          for (const std::size_t count : kCounts) {
            ops.emplace_back("t" + std::to_string(count), count, 1.5F);
            ops.back().op.reduce_op = HVD_AVERAGE;
            ops.back().op.prescale = 2.0;
            ops.back().op.postscale = 4.0;
          }
          const hvd_op* group[] = {&ops[0].op, &ops[1].op, &ops[2].op};
          std::int64_t handles[3] = {0, 0, 0};
          CHECK(hvd_enqueue_group(job.at(rank), group, 3, handles) == HVD_OK);
          for (std::size_t i = 0; i < 3; ++i) {
            CHECK(hvd_wait(job.at(rank), handles[i]) == HVD_OK);
            CHECK(ops[i].output == std::vector<float>(kCounts[i], 8.0F));  // (3 + 3 + 0) / 3 * 4
          }
        }
        CHECK(join(job.at(rank)).outcome.error == "");
      });
    }
  }
}

TEST_CASE("what a rank asked for before it joined is done with its own data, beside zeros for the rest") {
  EngineOptions options;
  options.cycle_time = std::chrono::milliseconds(50);  // so that they are fused
  for (const Nodes& nodes : {Nodes{2}, Nodes{1, 1}}) {
    EngineJob job(nodes, options);
    on_all(2, [&](int rank) {
      std::deque<FloatOp> ops;
      for (int i = 0; i < 10; ++i) {
        ops.emplace_back("t" + std::to_string(i), 100, 1.0F);
        ops.back().op.prescale = 2.0;
        ops.back().op.postscale = 0.5;
        if (rank == 0 || i % 2 == 1) {
          CHECK(ops.back().start(job.at(rank)).status == HVD_OK);
        }
      }
      const Joined joined = join(job.at(rank));
      CHECK(joined.outcome.error == "");
      for (int i = 0; i < 10; ++i) {
        if (rank == 0 || i % 2 == 1) {
          CHECK(ops[static_cast<std::size_t>(i)].wait(job.at(rank)).status == HVD_OK);
          CHECK(ops[static_cast<std::size_t>(i)].output == std::vector<float>(100, i % 2 == 1 ? 2.0F : 1.0F));
        }
      }
    });
  }
}

TEST_CASE("groups, scalars, empty tensors and barriers go on without the ranks that have joined") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    if (rank != 1) {
      FloatOp scalar("scalar", 1, 2.0F);
      scalar.op.ndim = 0;
      FloatOp empty("empty", 0, 2.0F);
      FloatOp barrier("barrier", 0, 0.0F);
      barrier.op.kind = HVD_BARRIER;
      FloatOp first("g0", 5, 1.0F);
      FloatOp second("g1", 6, 1.0F);
      const hvd_op* group[] = {&first.op, &second.op};
      std::int64_t handles[2] = {0, 0};
      CHECK(scalar.run(job.at(rank)).error == "");
      CHECK(empty.run(job.at(rank)).error == "");
      CHECK(barrier.run(job.at(rank)).error == "");
      CHECK(hvd_enqueue_group(job.at(rank), group, 2, handles) == HVD_OK);
      CHECK(hvd_wait(job.at(rank), handles[1]) == HVD_OK);
      CHECK(hvd_wait(job.at(rank), handles[0]) == HVD_OK);
      CHECK(scalar.output[0] == 4.0F);
      CHECK(second.output == std::vector<float>(6, 2.0F));
    }
    CHECK(join(job.at(rank)).outcome.error == "");
  });
}

TEST_CASE("operations that cannot do without a joined rank fail on all others, and the join goes on") {
  EngineJob job({1, 2});
  on_all(3, [&](int rank) {
    if (rank != 1) {
      for (const std::int32_t kind : {HVD_ALLGATHER, HVD_BROADCAST, HVD_REDUCESCATTER, HVD_ALLTOALL}) {
        FloatOp op("join", 3, 1.0F);  // also under the join's own name
        op.op.kind = kind;
        op.op.output = kind == HVD_BROADCAST ? op.output.data() : nullptr;
        const Outcome got = op.run(job.at(rank));
        CHECK(got.status == HVD_MISMATCH);
        CHECK(got.says("is not supported with Join at this time: rank 1 has joined (tensor 'join')"));
      }
      FloatOp sum("join", 3, 1.0F);
      CHECK(sum.run(job.at(rank)).error == "");
      CHECK(sum.output == std::vector<float>(3, 2.0F));
    }
    CHECK(join(job.at(rank)).outcome.error == "");
  });
}

TEST_CASE("a rank that waits in a join can start nothing else") {
  EngineJob job({2});
  std::int64_t handle = 0;
  REQUIRE(start_join(job.at(0), handle).status == HVD_OK);
  FloatOp op("x", 2, 1.0F);
  const Outcome refused = op.start(job.at(0));
  CHECK(refused.status == HVD_INVALID);
  CHECK(refused.says("this rank has joined and waits for the others; 'x' can be started when the join has ended"));
  std::int64_t again = 0;
  CHECK(start_join(job.at(0), again).status == HVD_INVALID);
  CHECK(join(job.at(1)).last == 1);
  CHECK(wait_for_join(job.at(0), handle).last == 1);
  on_all(2, [&](int rank) {
    FloatOp after("x", 2, 1.0F);
    CHECK(after.run(job.at(rank)).status == HVD_OK);
  });
}

TEST_CASE("a rank that dies or leaves while others have joined ends their join with an error that names it") {
  const std::string cause = "rank 2 was killed by signal 9 (SIGKILL)";
  for (const bool leaves : {false, true}) {
    EngineJob job({2, 1});
    std::latch joined(2);
    on_all(3, [&](int rank) {
      if (rank == 2) {
        joined.wait();
        if (leaves) {
          job.leave(2);
        } else {
          job.hub().notify_all(cause);
        }
        return;
      }
      std::int64_t handle = 0;
      CHECK(start_join(job.at(rank), handle).status == HVD_OK);
      joined.count_down();
      const Joined got = wait_for_join(job.at(rank), handle);
      CHECK(got.outcome.status == HVD_LOST_PEER);
      CHECK(got.outcome.says(leaves ? "Horovod has been shut down by rank 2" : cause));
    });
  }
}

TEST_CASE("ranks join again and again, each time another one last") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    for (int round = 0; round < 30; ++round) {
      const int steps = (rank + round) % 3;
      for (int step = 0; step < steps; ++step) {
        FloatOp op("x", 50, 1.0F);
        CHECK(op.run(job.at(rank)).error == "");
        CHECK(op.output[49] == static_cast<float>(2 - step));
      }
      const Joined joined = join(job.at(rank));
      CHECK((joined.last + round) % 3 == 2);
    }
  });
}

}  // namespace hvd::test::engine_join_test
