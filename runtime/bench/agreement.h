// What ranks that measure have to agree on, through the C interface: the slowest one's times, how many calls to make,
// how much was wrong. All ranks call these in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::bench {

double now_s();
Result<void> barrier();
// The largest on any rank, number by number.
Result<std::vector<double>> largest(std::vector<double> values);
Result<std::int64_t> sum(std::int64_t value);

// Times batches of calls, after `warmup` calls that are not: a reading of the clock costs as much as the smallest
// operation. `call` fails as the operation does. Times are of the slowest rank in each batch.
Result<Timing> time_calls(const BenchOptions& options, const std::function<Result<void>()>& call);

// Of times of calls, in any order.
Timing timing_of(std::vector<double> seconds, std::int64_t calls);

}  // namespace hvd::bench
