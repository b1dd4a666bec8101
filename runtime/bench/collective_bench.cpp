#include "runtime/bench/agreement.h"
#include "runtime/bench/bench_rank.h"

namespace hvd::bench {
namespace {

Result<Timing> measure(Collective& collective, const BenchOptions& options, std::uint64_t seed) {
  HVD_TRY_ASSIGN(const std::int64_t wrong, collective.call_checked(seed));
  collective.calm();
  HVD_TRY_ASSIGN(Timing timing, time_calls(options, [&collective] { return collective.call(); }));
  HVD_TRY_ASSIGN(timing.wrong, sum(wrong));
  return timing;
}

}  // namespace

Result<void> measure_collective(const BenchOptions& options, Place place, const PutRow& put) {
  std::uint64_t seed = 0;
  std::int64_t last_bytes = 0;
  for (const std::int64_t size : sizes_of(options)) {
    Row row;
    row.what = name_of(options.measure);
    for (const bool in_place : {false, true}) {
      if (in_place && !Collective::has_in_place(options.measure)) {
        continue;
      }
      HVD_TRY_ASSIGN(const auto collective, Collective::make(options, place, size, in_place));
      if (collective->bytes() == last_bytes && !in_place) {
        break;  // the next size has no more whole elements
      }
      row.bytes = collective->bytes();
      row.count = collective->count();
      HVD_TRY_ASSIGN((in_place ? row.in_place : row.apart), measure(*collective, options, ++seed));
    }
    if (row.apart) {
      last_bytes = row.bytes;
      put(row);
    }
  }
  return {};
}

}  // namespace hvd::bench
