// These functions print the results of `hvdrun bench` as a table, JSON or a chart. The table has the columns of
// nccl-tests and its way of counting bytes, so that people and scripts that know it can read it. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/chart/chart.h"
#include "launcher/placement/placement.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::launch {

// Each of these ends with a newline. Lines that hold no result begin with '#'.
std::string bench_head(const bench::BenchOptions& options, const Placement& placement);
std::string bench_line(const bench::BenchOptions& options, int ranks, const bench::Row& row);
std::string bench_foot(const bench::BenchOptions& options, int ranks, const std::vector<bench::Row>& rows);

// Returns a row as one line of JSON: seconds, and bytes per second.
std::string bench_json(const bench::BenchOptions& options, int ranks, const bench::Row& row);

// Draws bandwidth and time by size. `gradients` has one size, and so a point for each way to reduce them.
Chart bench_chart(const bench::BenchOptions& options, const Placement& placement, const std::vector<bench::Row>& rows);

}  // namespace hvd::launch
