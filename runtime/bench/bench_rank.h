// A rank that measures: `hvdrun-agent bench ...`, started by `hvdrun bench` like any other rank. It speaks only the C
// interface, so what it measures is what programs get. Rank 0 prints a line for each row (bench_wire.h).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"
#include "runtime/bench/collective.h"

namespace hvd::bench {

// Takes each row as soon as it is there; on ranks other than 0 nothing comes.
using PutRow = std::function<void(const Row& row)>;

Result<void> measure_collective(const BenchOptions& options, Place place, const PutRow& put);
Result<void> measure_latency(const BenchOptions& options, Place place, const PutRow& put);
// Two rows for each pair of ranks: of --min bytes, and of --max.
Result<void> measure_pairs(const BenchOptions& options, Place place, const PutRow& put);
Result<void> measure_gradients(const BenchOptions& options, Place place, const PutRow& put);
// One way of these: tensors enqueued one by one.
Result<Row> measure_each_gradient(const BenchOptions& options, Place place);

// The whole of the rank; its exit code. `words` begin with "bench".
int run_bench_rank(std::span<const std::string> words);

}  // namespace hvd::bench
