// Small operations without the engine (execute/quick_path.h), and how they meet those that go the ordinary way.
#include <atomic>
#include <cmath>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"
#include "tests/multi/engine/thread_calls.h"

namespace hvd::test::engine_quick_test {
namespace {

Outcome execute(hvd_ctx* ctx, const hvd_op& op) {
  return outcome(hvd_execute(ctx, &op, nullptr));
}

}  // namespace

TEST_CASE("quick or not, the result is the same to the bit") {
  for (const Nodes& nodes : {Nodes{2}, Nodes{3}, Nodes{1, 1}}) {
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      std::uniform_real_distribution<float> value(-10.0F, 10.0F);
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{2700}, std::size_t{5000},
            std::size_t{16'385}, std::size_t{32'768}, std::size_t{32'769}}) {
        for (const int reduce_op : {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
          FloatOp quick("quick", count, 0.0F);
          for (float& each : quick.input) {
            each = value(random);
          }
          quick.op.reduce_op = reduce_op;
          quick.op.prescale = 0.3;
          quick.op.postscale = 1.7;
          FloatOp ordinary("ordinary", count, 0.0F);
          ordinary.input = quick.input;
          ordinary.op.input = ordinary.input.data();
          ordinary.op.reduce_op = reduce_op;
          ordinary.op.prescale = 0.3;
          ordinary.op.postscale = 1.7;
          CHECK(execute(job.at(rank), quick.op).error == "");
          CHECK(ordinary.run(job.at(rank)).error == "");
          CHECK((count == 0 || std::memcmp(quick.output.data(), ordinary.output.data(), count * sizeof(float)) == 0));
        }
      }
    });
  }
}

TEST_CASE("broadcasts, barriers, unnamed operations and those in place go quickly too, and in sets") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    const std::int32_t ranks[] = {0, 2};
    std::int32_t pair = 0;
    CHECK(outcome(hvd_process_set_add(ctx, ranks, 2, &pair)).error == "");
    for (int round = 0; round < 200; ++round) {
      FloatOp broadcast("b", 5, static_cast<float>(rank));
      broadcast.op.kind = HVD_BROADCAST;
      broadcast.op.root_rank = round % 3;
      CHECK(execute(ctx, broadcast.op).error == "");
      CHECK(broadcast.output == std::vector<float>(5, static_cast<float>(round % 3)));
      FloatOp barrier("c", 0, 0.0F);
      barrier.op.kind = HVD_BARRIER;
      CHECK(execute(ctx, barrier.op).error == "");
      FloatOp unnamed("", 3, static_cast<float>(rank + round));
      unnamed.op.name = nullptr;
      unnamed.op.output = unnamed.input.data();
      CHECK(execute(ctx, unnamed.op).error == "");
      CHECK(unnamed.input == std::vector<float>(3, static_cast<float>(3 + 3 * round)));
      if (rank != 1) {
        FloatOp among("among", 2, static_cast<float>(rank));
        among.op.process_set = pair;
        among.op.kind = HVD_BROADCAST;
        among.op.root_rank = 2;
        CHECK(execute(ctx, among.op).error == "");
        CHECK(among.output[0] == 2.0F);
      }
      std::int64_t handle = 0;
      FloatOp kept("kept", 4, 1.0F);
      CHECK(hvd_execute(ctx, &kept.op, &handle) == HVD_OK);
      hvd_output out = HVD_OUTPUT_INIT;
      CHECK(hvd_result(ctx, handle, &out) == HVD_OK);
      CHECK(out.data == kept.output.data());
      CHECK(out.size_bytes == 16);
      CHECK(out.shape[0] == 4);
      CHECK(hvd_release(ctx, handle) == HVD_OK);
    }
  });
}

// One that is late, or is stopped between the rounds of one operation, sends all of them the ordinary way.
TEST_CASE("larger ones in shares, in place, by ranks that come late now and then") {
  EngineJob job({3});
  static constexpr std::size_t kCount = 20'000;
  std::atomic<int> wrong = 0;
  on_all(3, [&](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int round = 0; round < 300; ++round) {
      if (random() % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));  // sleeps: comes late
      }
      FloatOp op("x", kCount - static_cast<std::size_t>(round), static_cast<float>(rank + round));
      op.op.output = op.input.data();
      const Outcome got = execute(job.at(rank), op.op);
      const std::vector<float> expected(op.input.size(), static_cast<float>(3 + 3 * round));
      wrong += got.status != HVD_OK || op.input != expected ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("ranks that call in other ways and orders, from several threads, meet all the same") {
  CHECK(wrong_of_threads({3}, 150) == 0);
}

TEST_CASE("what is wrong is told as ever, and the quick path works on") {
  EngineJob job({2});
  std::latch was_refused(1);
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    FloatOp shapes("shapes", static_cast<std::size_t>(rank + 1), 1.0F);
    const Outcome differs = execute(ctx, shapes.op);
    CHECK(differs.status == HVD_MISMATCH);
    CHECK(differs.says("rank 0 sent a tensor of shape [1], but rank 1 sent a tensor of shape [2]"));
    FloatOp bad("bad", 1, 1.0F);
    bad.op.input = nullptr;
    CHECK(execute(ctx, bad.op).says("input is NULL"));
    FloatOp gather("gather", 1, 1.0F);
    gather.op.kind = HVD_ALLGATHER;
    gather.op.output = nullptr;
    CHECK(execute(ctx, gather.op).says("handle is NULL"));
    FloatOp pending("pending", 1, 1.0F);
    if (rank == 0) {
      CHECK(pending.start(ctx).error == "");
      CHECK(execute(ctx, pending.op).says("same name"));
      was_refused.count_down();
    } else {
      was_refused.wait();  // so that it is pending until then
      CHECK(pending.start(ctx).error == "");
    }
    CHECK(pending.wait(ctx).error == "");
    FloatOp after("after", 1, 1.0F);
    CHECK(execute(ctx, after.op).error == "");
    CHECK(after.output[0] == 2.0F);
  });
}

TEST_CASE("after the job's end nothing goes quickly either") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    FloatOp op("x", 1, 1.0F);
    CHECK(execute(job.at(rank), op.op).error == "");
  });
  job.hub().notify_all("rank 7 was killed by SIGKILL");
  on_all(2, [&](int rank) {
    FloatOp op("y", 1'000'000, 1.0F);
    CHECK(execute(job.at(rank), op.op).says("rank 7 was killed"));  // now both know
    FloatOp small("x", 1, 1.0F);
    CHECK(execute(job.at(rank), small.op).says("rank 7 was killed"));
  });
}

}  // namespace hvd::test::engine_quick_test
