// Small operations of ranks on several nodes without the coordinator (execute/host_quick_path.h), and how they meet
// those that go the ordinary way.
#include <atomic>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test {
namespace {

Outcome execute(hvd_ctx* ctx, const hvd_op& op) {
  return outcome(hvd_execute(ctx, &op, nullptr));
}

const std::vector<Nodes>& host_layouts() {
  static const std::vector<Nodes> layouts = {{1, 1}, {1, 1, 1}, {2, 1}, {2, 2}, {1, 1, 1, 1, 1}, {3, 1, 2}};
  return layouts;
}

// Requests and bits: what this rank has asked the coordinator for.
std::uint64_t asked(hvd_ctx* ctx) {
  hvd_counters counters = HVD_COUNTERS_INIT;
  REQUIRE(hvd_counters_read(ctx, 0, &counters) == HVD_OK);
  return counters.requests + counters.known;
}

}  // namespace

TEST_CASE("between hosts, quick or not, the result is the same to the bit") {
  for (const Nodes& nodes : host_layouts()) {
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      std::uniform_real_distribution<float> value(-10.0F, 10.0F);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{8191},
                                      std::size_t{20'000}, std::size_t{32'768}, std::size_t{32'769}}) {
        for (const int reduce_op : {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_PRODUCT}) {
          FloatOp quick("quick", count, 0.0F);
          for (float& each : quick.input) {
            each = value(random);
          }
          FloatOp ordinary("ordinary", count, 0.0F);
          ordinary.input = quick.input;
          ordinary.op.input = ordinary.input.data();
          for (hvd_op* op : {&quick.op, &ordinary.op}) {
            op->reduce_op = reduce_op;
            op->prescale = count % 2 == 0 ? 0.3 : 1.0;
            op->postscale = 1.7;
          }
          CHECK(execute(job.at(rank), quick.op).error == "");
          CHECK(ordinary.run(job.at(rank)).error == "");
          CHECK((count == 0 || std::memcmp(quick.output.data(), ordinary.output.data(), count * sizeof(float)) == 0));
        }
      }
    });
  }
}

TEST_CASE("ranks of several hosts that come together ask the coordinator for little") {
  for (const Nodes& nodes : host_layouts()) {
    EngineJob job(nodes);
    static constexpr std::uint64_t kRounds = 300;
    on_all(job.size(), [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        FloatOp op("x", 100, static_cast<float>(rank));
        op.op.output = op.input.data();
        CHECK(execute(ctx, op.op).error == "");
        CHECK(op.input[99] == static_cast<float>(job.size() * (job.size() - 1) / 2));
      }
      CHECK(asked(ctx) < kRounds);  // some came late on a busy machine
    });
  }
}

TEST_CASE("between hosts, broadcasts, barriers and unnamed operations go quickly too, and in sets") {
  for (const Nodes& nodes : {Nodes{1, 1, 1}, Nodes{2, 2}, Nodes{1, 2, 1}}) {
    EngineJob job(nodes);
    const int size = job.size();
    on_all(size, [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      const std::int32_t ranks[] = {0, 2};
      std::int32_t pair = 0;
      CHECK(outcome(hvd_process_set_add(ctx, ranks, 2, &pair)).error == "");
      for (int round = 0; round < 60; ++round) {
        FloatOp broadcast("b", 5, static_cast<float>(rank));
        broadcast.op.kind = HVD_BROADCAST;
        broadcast.op.root_rank = round % size;
        CHECK(execute(ctx, broadcast.op).error == "");
        CHECK(broadcast.output == std::vector<float>(5, static_cast<float>(round % size)));
        FloatOp barrier("c", 0, 0.0F);
        barrier.op.kind = HVD_BARRIER;
        CHECK(execute(ctx, barrier.op).error == "");
        FloatOp unnamed("", 3, static_cast<float>(round));
        unnamed.op.name = nullptr;
        unnamed.op.output = unnamed.input.data();
        CHECK(execute(ctx, unnamed.op).error == "");
        CHECK(unnamed.input == std::vector<float>(3, static_cast<float>(size * round)));
        if (rank == 0 || rank == 2) {
          FloatOp among("among", 2, static_cast<float>(rank));
          among.op.process_set = pair;
          CHECK(execute(ctx, among.op).error == "");
          CHECK(among.output[0] == 2.0F);
        }
      }
      CHECK(outcome(hvd_process_set_remove(ctx, pair)).error == "");
    });
  }
}

TEST_CASE("between hosts, ranks that come late now and then, or call otherwise, meet all the same") {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 1, 1}, Nodes{2, 2}}) {
    EngineJob job(nodes);
    const int size = job.size();
    std::atomic<int> wrong = 0;
    on_all(size, [&](int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int round = 0; round < 200; ++round) {
        if (random() % 20 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));  // sleeps: comes late
        }
        FloatOp op("x", 2000 - static_cast<std::size_t>(round), static_cast<float>(round));
        const Outcome got = random() % 10 == 0 ? op.run(job.at(rank)) : execute(job.at(rank), op.op);
        const std::vector<float> expected(op.input.size(), static_cast<float>(size * round));
        wrong += got.status != HVD_OK || op.output != expected ? 1 : 0;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("between hosts, several threads of each rank meet in any order") {
  EngineJob job({1, 2});
  static constexpr int kThreads = 3;
  static constexpr int kRounds = 60;
  std::atomic<int> wrong = 0;
  on_all(3, [&](int rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(rank * 10 + t));
        for (int round = 0; round < kRounds; ++round) {
          FloatOp op("t" + std::to_string(t), 8, static_cast<float>(rank + round));
          const bool is_quick = random() % 4 != 0;
          const Outcome got = is_quick ? execute(job.at(rank), op.op) : op.run(job.at(rank));
          wrong += got.status != HVD_OK || op.output[7] != static_cast<float>(3 + 3 * round) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("between hosts, what is wrong is told as ever, and the quick path works on") {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{2, 1}}) {
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      FloatOp shapes("shapes", rank == 0 ? 1U : 2U, 1.0F);
      const Outcome differs = execute(ctx, shapes.op);
      CHECK(differs.status == HVD_MISMATCH);
      CHECK(differs.says("rank 0 sent a tensor of shape [1], but rank 1 sent a tensor of shape [2]"));
      for (int round = 0; round < 20; ++round) {
        FloatOp after("after", 1, 1.0F);
        CHECK(execute(ctx, after.op).error == "");
        CHECK(after.output[0] == static_cast<float>(job.size()));
      }
    });
  }
}

TEST_CASE("between hosts, a rank that has joined holds up nobody") {
  EngineJob job({1, 1, 1});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    for (int round = 0; round < 5 * (rank + 1); ++round) {
      FloatOp op("x", 4, 1.0F);
      CHECK(execute(ctx, op.op).error == "");
      CHECK(op.output[0] == static_cast<float>(round < 5 ? 3 : round < 10 ? 2 : 1));
    }
    FloatOp join("", 0, 0.0F);
    join.op.kind = HVD_JOIN;
    join.op.name = nullptr;
    std::int64_t handle = 0;
    CHECK(outcome(hvd_execute(ctx, &join.op, &handle)).error == "");
    CHECK(hvd_release(ctx, handle) == HVD_OK);
    FloatOp after("after", 4, 1.0F);
    CHECK(execute(ctx, after.op).error == "");
    CHECK(after.output[0] == 3.0F);
  });
}

TEST_CASE("between hosts, who leaves or ends the job ends the waits of others in a round") {
  {
    EngineJob job({1, 2});
    on_all(3, [&](int rank) {
      FloatOp first("x", 1, 1.0F);
      CHECK(execute(job.at(rank), first.op).error == "");
      if (rank == 0) {
        job.leave(0);
        return;
      }
      FloatOp op("y", 1, 1.0F);
      CHECK(execute(job.at(rank), op.op).says("Horovod has been shut down by rank 0"));
    });
  }
  EngineJob job({1, 2});
  std::latch is_waiting(2);
  on_all(3, [&](int rank) {
    FloatOp op("x", 1, 1.0F);
    if (rank == 0) {
      is_waiting.wait();
      job.hub().notify_all("rank 7 was killed by SIGKILL");
    } else {
      is_waiting.count_down();
    }
    CHECK((rank == 0 || execute(job.at(rank), op.op).says("rank 7 was killed")));
  });
}

TEST_CASE("between hosts, encrypted rounds give the same results") {
  EngineOptions options;
  options.mesh.is_sealed = true;
  EngineJob job({1, 2, 1}, options);
  on_all(4, [&](int rank) {
    for (std::size_t round = 0; round < 50; ++round) {
      FloatOp op("x", 1 + round * 300, static_cast<float>(rank));
      CHECK(execute(job.at(rank), op.op).error == "");
      CHECK(op.output == std::vector<float>(op.input.size(), 6.0F));
    }
  });
}

}  // namespace hvd::test
