// What `hvdrun bench` has measured, in words: the table that nccl-tests prints, with its columns and its way of
// counting bytes, so that eyes and scripts that know it can read it; or JSON; or a chart. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/placement.h"
#include "launcher/report/chart.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::launch {

// Each ends with a newline. Lines that hold no result begin with '#'.
std::string bench_head(const bench::BenchOptions& options, const Placement& placement);
std::string bench_line(const bench::BenchOptions& options, int ranks, const bench::Row& row);
std::string bench_foot(const bench::BenchOptions& options, int ranks, const std::vector<bench::Row>& rows);

// A row as one line of JSON: seconds, and bytes per second.
std::string bench_json(const bench::BenchOptions& options, int ranks, const bench::Row& row);

// Bandwidth and time by size, or of one size by what was called.
Chart bench_chart(const bench::BenchOptions& options, const Placement& placement, const std::vector<bench::Row>& rows);

}  // namespace hvd::launch
