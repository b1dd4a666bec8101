#include "runtime/bench/agreement.h"

#include <algorithm>
#include <cmath>

#include <time.h>

#include "hvd/hvd.h"
#include "runtime/bench/collective.h"

namespace hvd::bench {
namespace {

// How long a size is measured if --iters does not give a number: it is enough for a median on a shared machine.
constexpr double kAutoSeconds = 0.25;
constexpr double kAutoLeast = 10;
constexpr double kAutoMost = 20'000;
constexpr std::int64_t kBatches = 50;

Result<void> reduce(void* data, std::int64_t count, std::int32_t dtype, std::int32_t how, const char* name) {
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_ALLREDUCE;
  op.dtype = dtype;
  op.reduce_op = how;
  op.ndim = 1;
  op.shape = &count;
  op.name = name;
  op.input = data;
  op.output = data;
  return to_result(hvd_execute(nullptr, &op, nullptr), name);
}

Result<double> seconds_of(std::int64_t calls, const std::function<Result<void>()>& call) {
  const double began = now_s();
  for (std::int64_t i = 0; i < calls; ++i) {
    HVD_TRY(call());
  }
  return (now_s() - began) / static_cast<double>(std::max<std::int64_t>(1, calls));
}

}  // namespace

double now_s() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Result<void> barrier() {
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_BARRIER;
  op.name = "bench.barrier";
  return to_result(hvd_execute(nullptr, &op, nullptr), op.name);
}

Result<std::vector<double>> largest(std::vector<double> values) {
  HVD_TRY(reduce(values.data(), static_cast<std::int64_t>(values.size()), HVD_FLOAT64, HVD_MAX, "bench.largest"));
  return values;
}

Result<std::int64_t> sum(std::int64_t value) {
  HVD_TRY(reduce(&value, 1, HVD_INT64, HVD_SUM, "bench.sum"));
  return value;
}

Timing timing_of(std::vector<double> seconds, std::int64_t calls) {
  Timing timing;
  timing.calls = calls;
  if (seconds.empty()) {
    return timing;
  }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t last = seconds.size() - 1;
  timing.median_s = (seconds[last / 2] + seconds[(last + 1) / 2]) / 2;
  timing.fastest_s = seconds.front();
  timing.p99_s = seconds[static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(last)))];
  timing.slowest_s = seconds.back();
  return timing;
}

Result<Timing> time_calls(const BenchOptions& options, const std::function<Result<void>()>& call) {
  HVD_TRY(seconds_of(options.warmup, call));
  std::int64_t calls = options.iters;
  if (calls == 0) {
    HVD_TRY_ASSIGN(const double guess, seconds_of(3, call));
    HVD_TRY_ASSIGN(const auto slowest, largest({guess}));
    calls = static_cast<std::int64_t>(std::clamp(kAutoSeconds / std::max(slowest[0], 1e-9), kAutoLeast, kAutoMost));
  }
  const std::int64_t batches = std::min(calls, kBatches);
  const std::int64_t per_batch = (calls + batches - 1) / batches;
  std::vector<double> times;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    HVD_TRY(barrier());
    HVD_TRY_ASSIGN(const double seconds, seconds_of(per_batch, call));
    times.push_back(seconds);
  }
  HVD_TRY_ASSIGN(times, largest(std::move(times)));
  return timing_of(std::move(times), batches * per_batch);
}

}  // namespace hvd::bench
