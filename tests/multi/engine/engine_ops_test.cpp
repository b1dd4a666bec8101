// Operations on N ranks through the C interface: results, order of arrival, disagreements.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_ops_test {
namespace {

// One operation that all ranks do, made from its index.
struct Spec {
  std::int32_t kind = HVD_ALLREDUCE;
  std::int32_t dtype = HVD_FLOAT32;
  std::int32_t reduce_op = HVD_SUM;
  std::int32_t root = 0;
  std::int64_t count = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};

Spec spec_of(unsigned index, int size) {
  std::mt19937 random(index + 100);
  Spec spec;
  const std::int32_t kinds[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_BARRIER};
  spec.kind = kinds[random() % 6];
  spec.dtype = random() % 2 == 0 ? HVD_FLOAT32 : HVD_INT64;
  const std::int32_t ops[] = {HVD_AVERAGE, HVD_SUM, HVD_SUM, HVD_MIN, HVD_MAX};
  spec.reduce_op = ops[random() % 5];
  spec.root = static_cast<std::int32_t>(random() % static_cast<unsigned>(size));
  // One in twenty is large, to cross the chunks of the links; the rest is what gets fused.
  const std::int64_t counts[] = {0, 1, 5, 100, 1000};
  spec.count = random() % 20 == 0 ? 70'000 : counts[random() % 5];
  spec.prescale = random() % 4 == 0 ? 2.0 : 1.0;
  spec.postscale = random() % 4 == 0 ? 3.0 : 1.0;
  return spec;
}

double input_at(int rank, std::int64_t i) {
  return static_cast<double>((rank + 1) * (i % 7 + 1));
}

double reduced_at(const Spec& spec, int size, std::int64_t i) {
  const double unit = static_cast<double>(i % 7 + 1) * spec.prescale;
  const double sum = unit * size * (size + 1) / 2;
  switch (spec.reduce_op) {
    case HVD_MIN:
      return unit * spec.postscale;
    case HVD_MAX:
      return unit * size * spec.postscale;
    case HVD_AVERAGE:
      return sum * spec.postscale / size;
    default:
      return sum * spec.postscale;
  }
}

// One rank's run of one spec; typed memory behind it.
template <typename T>
struct Run {
  std::vector<T> input;
  std::vector<T> output;

  Run(const Spec& spec, int rank, std::int64_t rows) : input(static_cast<std::size_t>(rows)) {
    for (std::int64_t i = 0; i < rows; ++i) {
      input[static_cast<std::size_t>(i)] = static_cast<T>(input_at(rank, i));
    }
    output.assign(spec.kind == HVD_ALLGATHER ? 0 : input.size(), T{});
  }

  [[nodiscard]] bool is_right(const Spec& spec, int rank, int size, const hvd_output& out) const {
    const T* got = static_cast<const T*>(out.data);
    if (spec.kind == HVD_BARRIER) {
      return true;
    }
    if (spec.kind == HVD_ALLGATHER) {
      std::int64_t at = 0;
      for (int r = 0; r < size; ++r) {
        for (std::int64_t i = 0; i < spec.count + r; ++i) {
          if (got[at++] != static_cast<T>(input_at(r, i))) {
            return false;
          }
        }
      }
      return at == out.shape[0] && out.ndim == 1 && out.size_bytes == at * static_cast<std::int64_t>(sizeof(T));
    }
    for (std::int64_t i = 0; i < spec.count; ++i) {
      const double want = spec.kind == HVD_BROADCAST ? input_at(spec.root, i) : reduced_at(spec, size, i);
      // Integers truncate toward zero.
      const double error = std::is_integral_v<T> ? std::trunc(want) - static_cast<double>(got[i])
                                                 : (want - static_cast<double>(got[i])) / want;
      if (std::abs(error) > 1e-6 || input[static_cast<std::size_t>(i)] != static_cast<T>(input_at(rank, i))) {
        return false;
      }
    }
    return out.data == (spec.count == 0 ? out.data : static_cast<const void*>(output.data()));
  }
};

template <typename T>
hvd_op op_of(const Spec& spec, Run<T>& run, const std::int64_t* rows, const std::string& name) {
  hvd_op op = HVD_OP_INIT;
  op.kind = spec.kind;
  op.dtype = spec.dtype;
  op.reduce_op = spec.reduce_op;
  op.root_rank = spec.root;
  op.ndim = 1;
  op.shape = rows;
  op.name = name.c_str();
  op.input = run.input.data();
  op.output = spec.kind == HVD_ALLGATHER ? nullptr : run.output.data();
  op.prescale = spec.prescale;
  op.postscale = spec.postscale;
  return op;
}

// All specs on one rank, in its own order, then all results in another. Returns how many were right.
int run_specs(hvd_ctx* ctx, unsigned first, unsigned count) {
  const int rank = hvd_rank(ctx);
  const int size = hvd_size(ctx);
  struct Item {
    Spec spec;
    std::string name;
    std::int64_t rows;
    Run<float> floats;
    Run<std::int64_t> integers;
    std::int64_t handle = 0;
  };
  std::vector<Item> items;
  items.reserve(count);
  for (unsigned i = first; i < first + count; ++i) {
    const Spec spec = spec_of(i, size);
    const std::int64_t rows = spec.kind == HVD_ALLGATHER ? spec.count + rank : spec.count;
    const bool is_float = spec.dtype == HVD_FLOAT32;
    items.push_back({spec, "op" + std::to_string(i), rows, Run<float>(spec, rank, is_float ? rows : 0),
                     Run<std::int64_t>(spec, rank, is_float ? 0 : rows)});
  }
  std::mt19937 random(first + static_cast<unsigned>(rank));
  std::shuffle(items.begin(), items.end(), random);
  int right = 0;
  for (Item& item : items) {
    const hvd_op op = item.spec.dtype == HVD_FLOAT32 ? op_of(item.spec, item.floats, &item.rows, item.name)
                                                     : op_of(item.spec, item.integers, &item.rows, item.name);
    if (hvd_enqueue(ctx, &op, &item.handle) != HVD_OK) {
      return -1;
    }
  }
  std::shuffle(items.begin(), items.end(), random);
  for (Item& item : items) {
    hvd_output out = HVD_OUTPUT_INIT;
    if (hvd_wait(ctx, item.handle) != HVD_OK || hvd_result(ctx, item.handle, &out) != HVD_OK) {
      return -2;
    }
    const bool is_right = item.spec.dtype == HVD_FLOAT32 ? item.floats.is_right(item.spec, rank, size, out)
                                                         : item.integers.is_right(item.spec, rank, size, out);
    right += is_right && hvd_release(ctx, item.handle) == HVD_OK ? 1 : 0;
  }
  return right;
}

void run_random_job(const Nodes& nodes, std::size_t fusion_threshold_bytes) {
  CAPTURE(text_of(nodes));
  EngineOptions options;
  options.fusion_threshold_bytes = fusion_threshold_bytes;
  EngineJob job(nodes, options);
  std::vector<int> right(static_cast<std::size_t>(job.size()));
  on_all(job.size(), [&](int rank) { right[static_cast<std::size_t>(rank)] = run_specs(job.at(rank), 0, 200); });
  CHECK(right == std::vector<int>(right.size(), 200));
}

}  // namespace

TEST_CASE("200 random operations in a different order on every rank give the right results on all") {
  for (const Nodes& nodes : all_layouts()) {
    run_random_job(nodes, std::size_t{128} << 20U);
  }
}

TEST_CASE("results do not depend on how much is fused") {
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{1000}, std::size_t{100'000}}) {
    run_random_job({2, 1}, threshold);
  }
}

TEST_CASE("operations one at a time work without a batching window too") {
  EngineOptions options;
  options.cycle_time = Duration::zero();
  EngineJob job({3}, options);
  std::atomic<int> right = 0;
  on_all(3, [&](int rank) {
    for (unsigned i = 0; i < 50; ++i) {
      right += run_specs(job.at(rank), 1000 + i, 1);
    }
  });
  CHECK(right == 150);
}

TEST_CASE("an operation in place, and one whose input must stay as it is") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    FloatOp in_place("in place", 10, static_cast<float>(rank + 1));
    in_place.op.output = in_place.input.data();
    in_place.op.prescale = 2.0;
    FloatOp apart("apart", 10, static_cast<float>(rank + 1));
    apart.op.prescale = 2.0;
    CHECK(in_place.start(job.at(rank)).status == HVD_OK);
    CHECK(apart.run(job.at(rank)).status == HVD_OK);
    CHECK(in_place.wait(job.at(rank)).status == HVD_OK);
    CHECK(in_place.input == std::vector<float>(10, 6.0F));
    CHECK(apart.input == std::vector<float>(10, static_cast<float>(rank + 1)));
    CHECK(apart.output == std::vector<float>(10, 6.0F));
  });
}

TEST_CASE("unnamed operations are matched by their order") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    for (int i = 0; i < 3; ++i) {
      FloatOp op("", 4, static_cast<float>(i));
      op.op.name = nullptr;
      CHECK(op.run(job.at(rank)).status == HVD_OK);
      CHECK(op.output == std::vector<float>(4, static_cast<float>(2 * i)));
    }
  });
}

TEST_CASE("ranks that disagree all get the same error, and the job goes on") {
  for (const Nodes& nodes : {Nodes{2}, Nodes{2, 1}}) {
    EngineJob job(nodes);
    const int last = job.size() - 1;
    std::vector<std::string> errors(static_cast<std::size_t>(job.size()));
    on_all(job.size(), [&](int rank) {
      FloatOp op("x", rank == last ? 3 : 2, 1.0F);
      const Outcome got = op.run(job.at(rank));
      CHECK(got.status == HVD_MISMATCH);
      errors[static_cast<std::size_t>(rank)] = got.error;
      FloatOp again("x", 2, 1.0F);
      CHECK(again.run(job.at(rank)).status == HVD_OK);
      FloatOp kinds("y", 2, 1.0F);
      kinds.op.kind = rank == 0 ? HVD_BROADCAST : HVD_ALLREDUCE;
      CHECK(kinds.run(job.at(rank)).says("Mismatched operations: rank 0 did BROADCAST, but rank 1 did ALLREDUCE"));
      FloatOp roots("z", 2, 1.0F);
      roots.op.kind = HVD_BROADCAST;
      roots.op.root_rank = rank == last ? 1 : 0;
      CHECK(roots.run(job.at(rank)).says("Mismatched BROADCAST root ranks"));
    });
    for (const std::string& error : errors) {
      CHECK(error == "Mismatched ALLREDUCE tensor shapes: rank 0 sent a tensor of shape [2], but rank " +
                         std::to_string(last) + " sent a tensor of shape [3] (tensor 'x')");
    }
  }
}

TEST_CASE("an allgather of scalars is an error on all ranks") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    FloatOp op("s", 1, 1.0F);
    op.op.kind = HVD_ALLGATHER;
    op.op.ndim = 0;
    op.op.output = nullptr;
    const Outcome got = op.run(job.at(rank));
    CHECK(got.status == HVD_MISMATCH);
    CHECK(got.says("scalar"));
  });
}

TEST_CASE("a name that is pending already is refused on that rank, and free again afterwards") {
  EngineJob job({2});
  FloatOp first("x", 2, 1.0F);
  FloatOp second("x", 2, 1.0F);
  REQUIRE(first.start(job.at(0)).status == HVD_OK);
  const Outcome got = second.start(job.at(0));
  CHECK(got.status == HVD_INVALID);
  CHECK(got.says("with the same name as another tensor that is currently being processed: 'x'"));
  FloatOp other("x", 2, 1.0F);
  CHECK(other.run(job.at(1)).status == HVD_OK);
  CHECK(first.wait(job.at(0)).status == HVD_OK);
  on_all(2, [&](int rank) {
    FloatOp again("x", 2, 1.0F);
    CHECK(again.run(job.at(rank)).status == HVD_OK);
  });
}

TEST_CASE("a tensor that one rank is late for does not hold up the others") {
  EngineJob job({3});
  FloatOp late0("late", 2, 1.0F);
  FloatOp late1("late", 2, 1.0F);
  REQUIRE(late0.start(job.at(0)).status == HVD_OK);
  REQUIRE(late1.start(job.at(1)).status == HVD_OK);
  on_all(3, [&](int rank) {
    for (int i = 0; i < 20; ++i) {
      FloatOp op("t" + std::to_string(i), 8, 1.0F);
      CHECK(op.run(job.at(rank)).status == HVD_OK);
    }
  });
  std::int32_t done = 1;
  CHECK(hvd_poll(job.at(0), late0.handle, &done) == HVD_OK);
  CHECK(done == 0);
  FloatOp late2("late", 2, 1.0F);
  CHECK(late2.run(job.at(2)).status == HVD_OK);
  CHECK(late0.wait(job.at(0)).status == HVD_OK);
  CHECK(late1.wait(job.at(1)).status == HVD_OK);
  CHECK(late1.output == std::vector<float>(2, 3.0F));
}

TEST_CASE("many threads of one rank may submit at once") {
  EngineJob job({2});
  std::atomic<int> right = 0;
  on_all(2, [&](int rank) {
    on_all(4, [&, rank](int thread) {
      for (int i = 0; i < 25; ++i) {
        FloatOp op("t" + std::to_string(thread) + "." + std::to_string(i), 16, 1.0F);
        const bool is_right = op.run(job.at(rank)).status == HVD_OK && op.output == std::vector<float>(16, 2.0F);
        right += is_right ? 1 : 0;
      }
    });
  });
  CHECK(right == 200);
}

TEST_CASE("a thread that waits does the work itself: the engine's own thread dozes") {
  EngineJob job({1});
  const auto wakes = [] {
    long count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(task.path() / "comm") >> name;
      std::ifstream status(task.path() / "status");
      for (std::string line; name == "hvd-engine" && std::getline(status, line);) {
        if (line.find("voluntary_ctxt_switches") == 0) {
          count += std::stol(line.substr(line.find(':') + 1));
        }
      }
    }
    return count;
  };
  static constexpr int kCalls = 20'000;
  FloatOp op("x", 1, 1.0F);
  const long before = wakes();
  for (int i = 0; i < kCalls; ++i) {
    std::int64_t handle = 0;
    REQUIRE(hvd_execute(job.at(0), &op.op, &handle) == HVD_OK);
    REQUIRE(hvd_release(job.at(0), handle) == HVD_OK);
  }
  // Waking it for each call would be once a call at the least. Once a doze is what it needs, and a few more when a
  // driver takes the turn lock before it each time; on a loaded machine that may be hundreds.
  CHECK(wakes() - before <= kCalls / 4);
}

TEST_CASE("threads that wait at once all get their results, whoever turns the engine") {
  EngineJob job({3});
  static constexpr int kThreads = 4;
  static constexpr int kRounds = 200;
  std::atomic<int> wrong{0};
  on_all(job.size(), [&](int rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int round = 0; round < kRounds; ++round) {
          FloatOp op("t" + std::to_string(t), 10, static_cast<float>(rank + round));
          std::int64_t handle = 0;
          // Half of them first submit and then wait, so that the engine's thread is woken too.
          const bool executes = (round + t) % 2 == 0;
          hvd_status status =
              executes ? hvd_execute(job.at(rank), &op.op, &handle) : hvd_enqueue(job.at(rank), &op.op, &handle);
          if (!executes && status == HVD_OK) {
            status = hvd_wait(job.at(rank), handle);
          }
          wrong += status != HVD_OK || op.output[9] != static_cast<float>(3 + 3 * round) ? 1 : 0;
          hvd_release(job.at(rank), handle);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a job that is left while a thread turns the engine sets that thread free") {
  int cancelled = 0;
  for (int round = 0; round < 50; ++round) {
    EngineJob job({2});
    std::atomic<bool> is_calling = false;
    Outcome got;
    std::thread waiting([&] {
      FloatOp op("never", 100'000, 1.0F);  // too large for the quick path
      std::int64_t handle = 0;
      is_calling = true;
      got = outcome(hvd_execute(job.at(0), &op.op, &handle));
    });
    while (!is_calling) {
      std::this_thread::yield();
    }
    for (int i = 0; i < round; ++i) {
      std::this_thread::yield();
    }
    job.at(0)->close();
    waiting.join();
    // Or it was late, and found the context closed.
    const bool is_cancelled = got.status == HVD_CANCELLED;
    CHECK((is_cancelled || got.says("has been shut down")));
    cancelled += is_cancelled ? 1 : 0;
  }
  CHECK(cancelled > 0);
}

}  // namespace hvd::test::engine_ops_test
