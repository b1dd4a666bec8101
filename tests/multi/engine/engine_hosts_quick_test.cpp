// Small operations of ranks on several nodes without the coordinator (execute/host_quick_path.h), and how they meet
// those that go the ordinary way.
#include <atomic>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"
#include "tests/multi/engine/set_calls.h"
#include "tests/multi/engine/thread_calls.h"

namespace hvd::test::engine_hosts_quick_test {
namespace {

Outcome execute(hvd_ctx* ctx, const hvd_op& op) {
  return outcome(hvd_execute(ctx, &op, nullptr));
}

const std::vector<Nodes>& host_layouts() {
  static const std::vector<Nodes> layouts = {{1, 1}, {1, 1, 1}, {2, 1}, {2, 2}, {1, 1, 1, 1, 1}, {3, 1, 2}};
  return layouts;
}

// Operations of random finite numbers of one type, as bytes.
std::vector<std::uint8_t> random_numbers(std::mt19937& random, int dtype, std::size_t count) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t near_one = bits >> 16U & 7U;  // of an exponent
    const std::uint32_t number = dtype == HVD_FLOAT16    ? (bits & 0x83FFU) | (11U + near_one) << 10U
                                 : dtype == HVD_BFLOAT16 ? (bits & 0x807FU) | (123U + near_one) << 7U
                                                         : bits % 2000U - 1000U;
    const std::size_t size = dtype == HVD_INT32 ? 4 : 2;
    for (std::size_t byte = 0; byte < size; ++byte) {
      bytes.push_back(static_cast<std::uint8_t>(number >> (8U * byte)));
    }
  }
  return bytes;
}

// Requests and bits: what this rank has asked the coordinator for.
std::uint64_t asked(hvd_ctx* ctx) {
  hvd_counters counters = HVD_COUNTERS_INIT;
  REQUIRE(hvd_counters_read(ctx, 0, &counters) == HVD_OK);
  return counters.requests + counters.known;
}

// Runs operations until ten in a row were quick on all ranks; false: that does not happen. A rank may miss some where
// the machine is busy. All ranks learn by the operations themselves which were quick, and so stop together.
bool becomes_quick(hvd_ctx* ctx, int size) {
  static constexpr int kMost = 10'000;
  bool was_quick = false;
  int quick = 0;
  for (int i = 0; i < kMost && quick < 10; ++i) {
    const std::uint64_t asked_before = asked(ctx);
    FloatOp op("is it quick", 1, was_quick ? 1.0F : 0.0F);
    CHECK(execute(ctx, op.op).error == "");
    quick = op.output[0] == static_cast<float>(size) ? quick + 1 : 0;  // the one before
    was_quick = asked(ctx) == asked_before;
  }
  return quick == 10;
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
    static constexpr int kRounds = 300;
    on_all(job.size(), [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      for (int round = 0; round < kRounds; ++round) {
        FloatOp op("x", 100, static_cast<float>(rank));
        op.op.output = op.input.data();
        CHECK(execute(ctx, op.op).error == "");
        CHECK(op.input[99] == static_cast<float>(job.size() * (job.size() - 1) / 2));
      }
      CHECK(becomes_quick(ctx, job.size()));
    });
  }
}

TEST_CASE("between hosts, halves and integer averages are the same to the bit too") {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 1, 1}, Nodes{2, 2}, Nodes{3, 1, 2}}) {
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      for (const int dtype : {HVD_FLOAT16, HVD_BFLOAT16, HVD_INT32}) {
        for (const int reduce_op : {HVD_SUM, HVD_AVERAGE, HVD_MAX}) {
          for (const std::int64_t count : {1, 333, 9000}) {
            const auto input = random_numbers(random, dtype, static_cast<std::size_t>(count));
            std::vector<std::uint8_t> quick_result(input.size());
            std::vector<std::uint8_t> ordinary_result(input.size());
            hvd_op op = HVD_OP_INIT;
            op.kind = HVD_ALLREDUCE;
            op.dtype = dtype;
            op.reduce_op = reduce_op;
            op.ndim = 1;
            op.shape = &count;
            op.input = input.data();
            op.name = "quick";
            op.output = quick_result.data();
            CHECK(execute(job.at(rank), op).error == "");
            op.name = "ordinary";
            op.output = ordinary_result.data();
            std::int64_t handle = 0;
            CHECK(outcome(hvd_enqueue(job.at(rank), &op, &handle)).error == "");
            CHECK(outcome(hvd_wait(job.at(rank), handle)).error == "");
            CHECK(hvd_release(job.at(rank), handle) == HVD_OK);
            CHECK(quick_result == ordinary_result);
          }
        }
      }
    });
  }
}

TEST_CASE("between hosts, an operation that not all ranks try leaves the next ones quick") {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 1, 1}, Nodes{2, 1}, Nodes{2, 2}}) {
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      for (int time = 0; time < 3; ++time) {
        FloatOp beside("beside", 1, 1.0F);
        FloatOp missed("missed", 1, 1.0F);
        if (rank == 0) {
          CHECK(beside.start(ctx).error == "");
          CHECK(execute(ctx, missed.op).error == "");  // not alone
          CHECK(beside.wait(ctx).error == "");
        } else {
          CHECK(execute(ctx, missed.op).error == "");
          CHECK(beside.run(ctx).error == "");
        }
        CHECK(becomes_quick(ctx, job.size()));
      }
    });
  }
}

TEST_CASE("between hosts, a long join leaves what comes after it quick") {
  for (const Nodes& nodes : {Nodes{1, 1, 1}, Nodes{2, 1}}) {
    EngineJob job(nodes);
    on_all(3, [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      for (int i = 0; i < (rank == 2 ? 1 : 300); ++i) {
        FloatOp op("x", 4, 1.0F);
        CHECK(execute(ctx, op.op).error == "");
      }
      FloatOp join("", 0, 0.0F);
      join.op.kind = HVD_JOIN;
      join.op.name = nullptr;
      std::int64_t handle = 0;
      CHECK(outcome(hvd_execute(ctx, &join.op, &handle)).error == "");
      CHECK(hvd_release(ctx, handle) == HVD_OK);
      CHECK(becomes_quick(ctx, 3));
    });
  }
}

// The other rank of the set has nothing to do with the operation, and may have left the set first.
TEST_CASE("a set that is removed while an operation waits for its other hosts leaves the job alone") {
  EngineJob job({1, 1, 1});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    for (int time = 0; time < 30; ++time) {
      const std::int32_t pair = must_add(ctx, {0, 1});
      FloatOp op("x", 1, 1.0F);
      op.op.process_set = pair;
      std::latch is_on_its_way(2);
      std::thread other([&] {
        if (rank == 0) {
          is_on_its_way.arrive_and_wait();
          const Outcome ended = execute(ctx, op.op);
          CHECK(
              (ended.status == HVD_OK || ended.says("is being removed, or has been") || ended.says("no process set")));
        }
      });
      if (rank == 0) {
        is_on_its_way.arrive_and_wait();
        std::this_thread::sleep_for(std::chrono::microseconds(500));  // sleeps: lets the other thread get into a round
      }
      if (hvd_process_set_remove(ctx, pair) != HVD_OK) {
        // The operation has gone the ordinary way before that.
        CHECK(outcome(HVD_INVALID).says("operations are pending in it"));
        CHECK((rank != 1 || execute(ctx, op.op).error == ""));
        other.join();
        CHECK(outcome(hvd_process_set_remove(ctx, pair)).error == "");
      } else {
        other.join();
      }
    }
    FloatOp after("after", 1, 1.0F);
    CHECK(execute(ctx, after.op).error == "");
    CHECK(after.output[0] == 3.0F);
  });
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
  CHECK(wrong_of_threads({1, 2}, 60) == 0);
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

}  // namespace hvd::test::engine_hosts_quick_test
