// Steady steps, in which ranks tell each other bits and no messages.
#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_known_test {
namespace {

hvd_counters counters_of(hvd_ctx* ctx, std::int32_t set = 0) {
  hvd_counters counters = HVD_COUNTERS_INIT;
  CHECK(hvd_counters_read(ctx, set, &counters) == HVD_OK);
  return counters;
}

constexpr int kTensors = 161;

std::size_t size_of_tensor(int tensor, int change) {
  return static_cast<std::size_t>(1 + tensor % 7 * 40 + change);
}

// What a rank brings; sums of these are exact.
float value_of(int rank, int tensor, int step) {
  return static_cast<float>((rank + 1) * (tensor + 1) + step);
}

// One rank's tensors of a step, in an order of its own. `changed`: one in ten has another shape than usual.
struct Training {
  hvd_ctx* ctx;
  int rank;
  int size;
  std::int32_t set = 0;
  std::mt19937 random;
  std::string error;

  Training(hvd_ctx* context, int own_rank, int ranks)
      : ctx(context), rank(own_rank), size(ranks), random(static_cast<unsigned>(own_rank)) {}

  void step(int number, bool changed) {
    std::deque<FloatOp> ops;
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      const std::size_t count = size_of_tensor(tensor, changed && tensor % 10 == 0 ? 3 : 0);
      ops.emplace_back("tensor." + std::to_string(tensor), count, value_of(rank, tensor, number));
      ops.back().op.process_set = set;
    }
    std::vector<int> order(kTensors);
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      order[static_cast<std::size_t>(tensor)] = tensor;
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const int tensor : order) {
      note(ops[static_cast<std::size_t>(tensor)].start(ctx));
    }
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      FloatOp& op = ops[static_cast<std::size_t>(tensor)];
      note(op.wait(ctx));
      float sum = 0;
      for (int other = 0; other < size; ++other) {
        sum += value_of(other, tensor, number);
      }
      const std::vector<float> expected(op.output.size(), sum);
      if (std::memcmp(op.output.data(), expected.data(), expected.size() * sizeof(float)) != 0 && error.empty()) {
        error = op.name + " is wrong in step " + std::to_string(number);
      }
      hvd_release(ctx, op.handle);
    }
  }
  void note(const Outcome& outcome) {
    if (outcome.status != HVD_OK && error.empty()) {
      error = outcome.error;
    }
  }
};

}  // namespace

TEST_CASE("steps of the same tensors, in each rank's own order, have their results and are asked for by bits") {
  for (const std::size_t capacity : {std::size_t{1024}, std::size_t{4}, std::size_t{0}}) {
    for (const Nodes& nodes : {Nodes{2}, Nodes{2, 1}, Nodes{1}}) {
      CAPTURE(capacity);
      CAPTURE(text_of(nodes));
      EngineOptions options;
      options.cache_capacity = capacity;
      EngineJob job(nodes, options);
      on_all(job.size(), [&](int rank) {
        Training training(job.at(rank), rank, job.size());
        for (int step = 0; step < 6; ++step) {
          training.step(step, step == 3);
        }
        CHECK(training.error == "");
        // By message in the first step, and where something had changed, or had changed before.
        const hvd_counters counters = counters_of(job.at(rank));
        const std::uint64_t changed = 2 * ((kTensors + 9) / 10);
        if (capacity == 1024) {
          CHECK(counters.requests == kTensors + changed);
          CHECK(counters.known == 5 * kTensors - changed);
        } else if (capacity == 0) {
          CHECK(counters.requests == 6 * kTensors);
          CHECK(counters.known == 0);
        }
      });
    }
  }
}

TEST_CASE("a steady step of a process set, too, is asked for by bits") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    const std::int32_t members[] = {0, 2};
    std::int32_t set = 0;
    CHECK(outcome(hvd_process_set_add(job.at(rank), members, 2, &set)).error == "");
    if (rank == 1) {
      return;
    }
    Training training(job.at(rank), rank, 3);
    training.set = set;
    // Of the two of them.
    const auto step = [&](int number) {
      FloatOp op("in a set", 1000, static_cast<float>(rank + number));
      op.op.process_set = set;
      CHECK(op.run(job.at(rank)).error == "");
      CHECK(op.output == std::vector<float>(1000, static_cast<float>(2 + 2 * number)));
      hvd_release(job.at(rank), op.handle);
    };
    for (int number = 0; number < 5; ++number) {
      step(number);
    }
    const hvd_counters counters = counters_of(job.at(rank), set);
    CHECK(counters.requests == 1);
    CHECK(counters.known == 4);
  });
}

TEST_CASE("a group is asked for by one bit, and so are all other kinds") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    for (int round = 0; round < 4; ++round) {
      FloatOp a("a", 100, 1.0F);
      FloatOp b("b", 200, 2.0F);
      const hvd_op* group[] = {&a.op, &b.op};
      std::int64_t handles[2] = {};
      CHECK(outcome(hvd_enqueue_group(ctx, group, 2, handles)).error == "");
      CHECK(outcome(hvd_finish(ctx, handles, 2)).error == "");
      CHECK(a.output == std::vector<float>(100, 2.0F));
      CHECK(b.output == std::vector<float>(200, 4.0F));
      for (const int kind : {HVD_ALLGATHER, HVD_REDUCESCATTER, HVD_ALLTOALL, HVD_BROADCAST, HVD_BARRIER}) {
        const std::size_t rows = kind == HVD_ALLGATHER ? static_cast<std::size_t>(2 + rank) : 4;
        FloatOp op("kind" + std::to_string(kind), rows, static_cast<float>(rank));
        op.op.kind = kind;
        op.op.output = kind == HVD_BROADCAST ? op.output.data() : nullptr;
        CHECK(op.run(ctx).error == "");
        hvd_output out = HVD_OUTPUT_INIT;
        CHECK(hvd_result(ctx, op.handle, &out) == HVD_OK);
        const auto* got = static_cast<const float*>(out.data);
        if (kind == HVD_ALLGATHER) {
          CHECK(std::vector<float>(got, got + 5) == std::vector<float>{0, 0, 1, 1, 1});
        } else if (kind == HVD_REDUCESCATTER) {
          CHECK(std::vector<float>(got, got + 2) == std::vector<float>{1, 1});
        } else if (kind == HVD_ALLTOALL) {
          CHECK(std::vector<float>(got, got + 4) == std::vector<float>{0, 0, 1, 1});
        }
        hvd_release(ctx, op.handle);
      }
    }
    const hvd_counters counters = counters_of(ctx);
    CHECK(counters.requests == 2 + 5);
    CHECK(counters.known == 3 * (2 + 5));
  });
}

TEST_CASE("ranks that disagree about what was known are told so, and go on") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    for (int round = 0; round < 6; ++round) {
      const bool differs = round % 3 == 2;
      FloatOp op("x", differs && rank == 1 ? 50 : 40, 1.0F);
      const Outcome done = op.run(ctx);
      CHECK(done.status == (differs ? HVD_MISMATCH : HVD_OK));
      if (differs) {
        CHECK(done.says("rank 0 sent a tensor of shape [40], but rank 1 sent a tensor of shape [50]"));
      }
      hvd_release(ctx, op.handle);
    }
  });
}

TEST_CASE("a rank that joins brings nothing to what others know") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int batch = 0; batch < 3 + rank; ++batch) {
        FloatOp op("gradient", 3000, 2.0F);
        CHECK(op.run(ctx).error == "");
        CHECK(op.output == std::vector<float>(3000, batch < 3 ? 4.0F : 2.0F));
        hvd_release(ctx, op.handle);
      }
      hvd_op join = HVD_OP_INIT;
      join.kind = HVD_JOIN;
      std::int64_t handle = 0;
      CHECK(outcome(hvd_execute(ctx, &join, &handle)).error == "");
      hvd_release(ctx, handle);
    }
    CHECK(counters_of(ctx).known > 0);
  });
}

}  // namespace hvd::test::engine_known_test
