// A measuring rank: `hvdrun-agent bench ...`, which `hvdrun bench` starts like any other rank. It uses only the C
// interface, so that it measures what programs get. Rank 0 prints a line for each row (bench_wire.h).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"
#include "runtime/bench/collective.h"

namespace hvd::bench {

// Receives each row as soon as it is measured; it is called on rank 0 only.
using PutRow = std::function<void(const Row& row)>;

Result<void> measure_collective(const BenchOptions& options, Place place, const PutRow& put);
Result<void> measure_latency(const BenchOptions& options, Place place, const PutRow& put);
// Gives two rows for each pair of ranks: one of --min bytes, and one of --max.
Result<void> measure_pairs(const BenchOptions& options, Place place, const PutRow& put);
Result<void> measure_gradients(const BenchOptions& options, Place place, const PutRow& put);
// Measures one way of these: tensors enqueued one by one.
Result<Row> measure_each_gradient(const BenchOptions& options, Place place);

// Runs the whole rank, and returns its exit code. `words` begin with "bench".
int run_bench_rank(std::span<const std::string> words);

}  // namespace hvd::bench
