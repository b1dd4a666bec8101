// A steady step takes no memory from the system. A program of its own, since it counts what the whole process takes.
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <deque>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"
#include "tests/support/sanitizers.h"

namespace {

std::atomic<long> allocations = 0;

}  // namespace

// A sanitizer has the memory, and nothing is counted: then the steps only run.
#if !HVD_HAS_ASAN && !HVD_HAS_TSAN
extern "C" {
void* __libc_malloc(std::size_t bytes);                       // NOLINT(bugprone-reserved-identifier): glibc's own
void* __libc_calloc(std::size_t count, std::size_t bytes);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* block, std::size_t bytes);         // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t align, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(std::size_t align, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(align, bytes);
}
}
#endif

namespace hvd::test {
namespace {

constexpr int kTensors = 161;
constexpr int kSteps = 3000;  // within which the queues have been as long as they get
constexpr int kInARow = 20;

// The tensors of a training program, made once.
struct Program {
  std::deque<FloatOp> ops;
  std::vector<const hvd_op*> pointers;
  std::vector<std::int64_t> handles = std::vector<std::int64_t>(kTensors);

  explicit Program(int rank) {
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      ops.emplace_back("a tensor with a long name, number " + std::to_string(tensor),
                       static_cast<std::size_t>(tensor % 9 * 100 + 1), static_cast<float>(rank));
      pointers.push_back(&ops.back().op);
    }
  }
};

using StepOf = std::function<bool(hvd_ctx* ctx, int rank, Program& program)>;

// How many steps it took until so many in a row took no memory; kSteps when there were none.
int steps_until_steady(const Nodes& nodes, const EngineOptions& options, const StepOf& step) {
  EngineJob job(nodes, options);
  std::barrier<> all(job.size());
  std::atomic<bool> is_over = false;
  std::atomic<int> steps = 0;
  long before = 0;
  int in_a_row = 0;
  bool are_ok = true;
  on_all(job.size(), [&](int rank) {
    Program program(rank);
    while (!is_over) {
      all.arrive_and_wait();
      const bool is_ok = step(job.at(rank), rank, program);
      all.arrive_and_wait();
      if (rank == 0) {
        const long now = allocations.load();
        in_a_row = now == before ? in_a_row + 1 : 0;
        before = now;
        are_ok = are_ok && is_ok;
        is_over = ++steps == kSteps || in_a_row == kInARow || !are_ok;
      }
      all.arrive_and_wait();
    }
  });
  CHECK(are_ok);
  return steps;
}

bool one_by_one(hvd_ctx* ctx, int rank, Program& program) {
  bool is_ok = true;
  for (int i = 0; i < kTensors; ++i) {
    // Each rank in an order of its own.
    const auto tensor = static_cast<std::size_t>((i * (5 + 4 * rank)) % kTensors);
    is_ok = hvd_enqueue(ctx, program.pointers[tensor], &program.handles[tensor]) == HVD_OK && is_ok;
  }
  return hvd_finish(ctx, program.handles.data(), kTensors) == HVD_OK && is_ok;
}

bool all_at_once(hvd_ctx* ctx, int, Program& program) {
  const bool is_ok = hvd_enqueue_many(ctx, program.pointers.data(), kTensors, 1, program.handles.data()) == HVD_OK;
  return hvd_finish(ctx, program.handles.data(), kTensors) == HVD_OK && is_ok;
}

bool as_group(hvd_ctx* ctx, int, Program& program) {
  const bool is_ok = hvd_enqueue_group(ctx, program.pointers.data(), kTensors, program.handles.data()) == HVD_OK;
  return hvd_finish(ctx, program.handles.data(), kTensors) == HVD_OK && is_ok;
}

bool synchronously(hvd_ctx* ctx, int, Program& program) {
  bool is_ok = true;
  for (int i = 0; i < 10; ++i) {
    std::int64_t handle = 0;
    is_ok = hvd_execute(ctx, program.pointers[static_cast<std::size_t>(i)], &handle) == HVD_OK && is_ok;
    is_ok = hvd_release(ctx, handle) == HVD_OK && is_ok;
  }
  return is_ok;
}

}  // namespace

TEST_CASE("a steady step takes no memory, however its tensors are asked for") {
  struct Way {
    const char* name;
    StepOf step;
  };
  const Way ways[] = {{"one by one", one_by_one},
                      {"all at once", all_at_once},
                      {"as a group", as_group},
                      {"synchronously", synchronously}};
  for (const Way& way : ways) {
    for (const Nodes& nodes : {Nodes{2}, Nodes{1, 1}, Nodes{1}}) {
      CAPTURE(way.name);
      CAPTURE(text_of(nodes));
      CHECK(steps_until_steady(nodes, {}, way.step) < kSteps);
    }
  }
}

TEST_CASE("nor does one between nodes along rings and in segments") {
  EngineOptions options;
  options.tuning.pairs_bytes = 0;
  options.tuning.wire_bytes = 4096;
  options.tuning.segment_bytes = 64U << 10U;
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{2, 1}}) {
    CAPTURE(text_of(nodes));
    CHECK(steps_until_steady(nodes, options, as_group) < kSteps);
  }
}

}  // namespace hvd::test
