// Tries the sizes of core/tuning.h on the placement at hand, and keeps those that are faster.
//
// Every rank joins the job again for each trial, with a table that rank 0 gives to all; times are of the slowest rank
// and so the same on all, as is what they choose. What was measured decides only where it differs by more than noise.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/result.h"
#include "runtime/bench/bench_rank.h"

namespace hvd::bench {

// Takes the table's text, at the end.
using PutTable = std::function<void(const std::string& json)>;

// On ranks other than 0 nothing is put. No job is joined before, and none is left open.
Result<void> measure_tuning(const BenchOptions& options, const PutRow& put, const PutTable& put_table);

// The best of `scores` (lower is better; logarithms of time), but scores[fallback] where that is nearly as good.
std::size_t choose(const std::vector<double>& scores, std::size_t fallback);

}  // namespace hvd::bench
