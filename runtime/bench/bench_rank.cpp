#include "runtime/bench/bench_rank.h"

#include <cstdio>

namespace hvd::bench {
namespace {

Result<void> measure(const BenchOptions& options, Place place, const PutRow& put) {
  switch (options.measure) {
    case Measure::kLatency:
      return measure_latency(options, place, put);
    case Measure::kGradients:
      return measure_gradients(options, place, put);
    case Measure::kPairs:
      return measure_pairs(options, place, put);
    case Measure::kAllreduce:
    case Measure::kAllgather:
    case Measure::kBroadcast:
    case Measure::kAlltoall:
    case Measure::kReducescatter:
      break;
  }
  return measure_collective(options, place, put);
}

// How many elements were wrong in all rows.
Result<std::int64_t> join_and_measure(std::span<const std::string> words) {
  HVD_TRY_ASSIGN(const BenchOptions options, from_words(words));
  HVD_TRY(to_result(hvd_init(nullptr), "joining the job"));
  const Place place{hvd_rank(nullptr), hvd_size(nullptr)};
  std::int64_t wrong = 0;
  bool is_read = true;
  HVD_TRY(measure(options, place, [&](const Row& row) {
    wrong += (row.apart ? row.apart->wrong : 0) + (row.in_place ? row.in_place->wrong : 0);
    if (place.rank == 0) {
      is_read = std::printf("%s\n", row.encode().c_str()) > 0 && std::fflush(stdout) == 0 && is_read;
    }
  }));
  HVD_TRY(to_result(hvd_shutdown(), "leaving the job"));
  if (!is_read) {
    return Error(Code::kSystem, "the results could not be written");
  }
  return wrong;
}

}  // namespace

int run_bench_rank(std::span<const std::string> words) {
  const auto wrong = join_and_measure(words);
  if (!wrong.ok()) {
    std::fprintf(stderr, "hvdrun bench: %s\n", wrong.error().message().c_str());
    return 1;
  }
  if (wrong.value() != 0) {
    std::fprintf(stderr, "hvdrun bench: %lld elements differ from the reference\n",
                 static_cast<long long>(wrong.value()));
  }
  return wrong.value() == 0 ? 0 : 1;
}

}  // namespace hvd::bench
