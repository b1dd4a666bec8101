#include "runtime/bench/agreement.h"
#include "runtime/bench/bench_rank.h"

namespace hvd::bench {
namespace {

constexpr std::int64_t kCalls = 5000;

// Times each call separately, on this rank.
Result<Timing> time_each(const BenchOptions& options, const std::function<Result<void>()>& call) {
  for (std::int64_t i = 0; i < options.warmup; ++i) {
    HVD_TRY(call());
  }
  const std::int64_t calls = options.iters == 0 ? kCalls : options.iters;
  std::vector<double> times(static_cast<std::size_t>(calls));
  for (double& seconds : times) {
    const double began = now_s();
    HVD_TRY(call());
    seconds = now_s() - began;
  }
  return timing_of(std::move(times), calls);
}

}  // namespace

Result<void> measure_latency(const BenchOptions& options, Place place, const PutRow& put) {
  Row waits;
  waits.what = "barrier";
  HVD_TRY_ASSIGN(waits.apart, time_each(options, barrier));
  put(waits);
  std::int64_t last_bytes = 0;
  for (const std::int64_t size : sizes_of(options)) {
    HVD_TRY_ASSIGN(const auto collective, Collective::make(options, place, size, true));
    if (collective->bytes() == last_bytes) {
      continue;
    }
    last_bytes = collective->bytes();
    HVD_TRY_ASSIGN(const std::int64_t wrong, collective->call_checked(static_cast<std::uint64_t>(size)));
    collective->calm();
    Row row;
    row.what = "allreduce";
    row.bytes = collective->bytes();
    row.count = collective->count();
    HVD_TRY_ASSIGN(row.in_place, time_each(options, [&collective] { return collective->call(); }));
    HVD_TRY_ASSIGN(row.in_place->wrong, sum(wrong));
    put(row);
  }
  return {};
}

}  // namespace hvd::bench
