#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options/out_file.h"
#include "launcher/chart/svg_canvas.h"
#include "launcher/placement/placement.h"
#include "launcher/report/bench_table.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/job_step.h"
#include "runtime/base/replace_file.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::cli {
namespace {

// A rank starts from a fork of the agent, so this is the agent, whatever its file is called and even if it was
// replaced.
constexpr const char* kOwnProgram = "/proc/self/exe";

Result<void> check_plot(const CliOptions& options, const std::string& path) {
  if (options.bench.measure == bench::Measure::kPairs) {
    return Error(Code::kInvalid, "--plot: pairs of ranks have no chart; there is --json");
  }
  if (options.bench.measure == bench::Measure::kTune) {
    return Error(Code::kInvalid, "--plot: what --tune tries has no chart; there is --json");
  }
  return check_out_file("--plot", path, ".svg");
}

Result<void> write_table(const CliOptions& options, const std::string& table) {
  if (table.empty()) {
    return Error(Code::kInternal, "--tune: the ranks ended without a table");
  }
  HVD_TRY(replace_file(options.tune, table));
  if (!options.json) {
    std::cout << "# " << options.tune << " holds for this placement: HVD_TUNING=" << options.tune << " hvdrun ...\n";
  }
  return {};
}

}  // namespace

Result<int> run_bench(const CliOptions& options) {
  for (const std::string& path : options.plots) {
    HVD_TRY(check_plot(options, path));
  }
  HVD_TRY_ASSIGN(const launch::Placement placement, launch::place(options.job.hosts, options.job.size));
  if (options.bench.measure == bench::Measure::kPairs && placement.size < 2) {
    return Error(Code::kInvalid, "bench pairs: one rank has no pair; as in: hvdrun bench pairs -H node1,node2");
  }
  if (options.bench.measure == bench::Measure::kTune) {
    HVD_TRY(check_out_file("--tune", options.tune));
    if (placement.size < 2) {
      return Error(Code::kInvalid,
                   "bench --tune: one rank has nobody to exchange data with; as in: hvdrun bench --tune " +
                       options.tune + " -np 2");
    }
  }
  launch::JobSpec job = options.job;
  job.argv = bench::to_words(options.bench);
  job.argv.insert(job.argv.begin(), kOwnProgram);
  job.cwd = "/";  // exists on every node
  job.input = launch::InputMode::kNone;
  job.shown_ranks = {};  // rank 0 prints what all have measured
  std::vector<bench::Row> rows;
  std::string table;
  const auto rewrite = [&](int, std::string_view line) -> std::optional<std::string> {
    if (auto found = bench::decode_table(line)) {
      table = std::move(*found);
      return "";
    }
    auto row = bench::Row::decode(line);
    if (!row) {
      return std::nullopt;
    }
    rows.push_back(*row);
    if (options.json) {
      return launch::bench_json(options.bench, placement.size, *row);
    }
    return (rows.size() == 1 ? launch::bench_head(options.bench, placement) : "") +
           launch::bench_line(options.bench, placement.size, *row);
  };
  HVD_TRY_ASSIGN(const int code, launch::run_step({job, placement, {}, {}, rewrite}));
  if (!options.json && !rows.empty()) {
    std::cout << launch::bench_foot(options.bench, placement.size, rows);
  }
  if (code == 0 && options.bench.measure == bench::Measure::kTune) {
    HVD_TRY(write_table(options, table));
  }
  if (code == 0) {
    const launch::Chart chart = launch::bench_chart(options.bench, placement, rows);
    for (const std::string& path : options.plots) {
      HVD_TRY(replace_file(path, launch::to_svg(chart)));
    }
  }
  return code;
}

}  // namespace hvd::cli
