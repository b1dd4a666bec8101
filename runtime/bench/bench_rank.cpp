#include "runtime/bench/bench_rank.h"

#include <cstdio>

#include "runtime/bench/tune_bench.h"

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
    case Measure::kTune:
      break;
  }
  return measure_collective(options, place, put);
}

std::int64_t wrong_in(const Row& row) {
  return (row.apart ? row.apart->wrong : 0) + (row.in_place ? row.in_place->wrong : 0);
}

// Printer writes the lines for hvdrun, each as soon as it is measured.
class Printer {
 public:
  void print(const std::string& line) {
    is_read_ = std::printf("%s\n", line.c_str()) > 0 && std::fflush(stdout) == 0 && is_read_;
  }
  [[nodiscard]] Result<void> check() const {
    return is_read_ ? Result<void>() : Error(Code::kSystem, "the results could not be written");
  }

 private:
  bool is_read_ = true;
};

Result<std::int64_t> tune(const BenchOptions& options) {
  std::int64_t wrong = 0;
  Printer printer;
  HVD_TRY(measure_tuning(
      options,
      [&](const Row& row) {
        wrong += wrong_in(row);
        printer.print(row.encode());
      },
      [&](const std::string& table) { printer.print(encode_table(table)); }));
  HVD_TRY(printer.check());
  return wrong;
}

// Returns how many elements were wrong in all rows.
Result<std::int64_t> join_and_measure(std::span<const std::string> words) {
  HVD_TRY_ASSIGN(const BenchOptions options, from_words(words));
  if (options.measure == Measure::kTune) {
    return tune(options);
  }
  HVD_TRY(to_result(hvd_init(nullptr), "joining the job"));
  const Place place{hvd_rank(nullptr), hvd_size(nullptr)};
  std::int64_t wrong = 0;
  Printer printer;
  HVD_TRY(measure(options, place, [&](const Row& row) {
    wrong += wrong_in(row);
    if (place.rank == 0) {
      printer.print(row.encode());
    }
  }));
  HVD_TRY(to_result(hvd_shutdown(), "leaving the job"));
  HVD_TRY(printer.check());
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
