// Functions by which measuring ranks agree, through the C interface, on the slowest rank's times, on how many calls to
// make, and on how many elements were wrong. All ranks call them in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::bench {

double now_s();
Result<void> barrier();
// Returns the largest value on any rank, element by element.
Result<std::vector<double>> largest(std::vector<double> values);
Result<std::int64_t> sum(std::int64_t value);

// Times batches of calls, after `warmup` calls that are not timed. It times batches, because reading the clock costs as
// much as the smallest operation. The times are those of the slowest rank in each batch. It fails if `call` fails.
Result<Timing> time_calls(const BenchOptions& options, const std::function<Result<void>()>& call);

// Computes the figures from the times of calls, in any order.
Timing timing_of(std::vector<double> seconds, std::int64_t calls);

}  // namespace hvd::bench
