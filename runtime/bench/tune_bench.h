// Tunes the sizes of core/tuning.h: it tries several on the actual placement, and keeps those that are faster.
//
// Every rank joins the job again for each trial, with a table that rank 0 gives to all. The times are those of the
// slowest rank, so all ranks see the same times and make the same choice. A measurement changes a size only if the
// difference is larger than noise.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/result.h"
#include "runtime/bench/bench_rank.h"

namespace hvd::bench {

// Receives the table's text, at the end.
using PutTable = std::function<void(const std::string& json)>;

// It is called with no job joined, and leaves none open. On ranks other than 0 nothing is put.
Result<void> measure_tuning(const BenchOptions& options, const PutRow& put, const PutTable& put_table);

// Returns the index of the best (lowest) of `scores`, which are logarithms of time; but `fallback` if scores[fallback]
// is nearly as good.
std::size_t choose(const std::vector<double>& scores, std::size_t fallback);

}  // namespace hvd::bench
